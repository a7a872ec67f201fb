"""What a study does next, derived from its trials alone: after a crash the same step comes out.

BASELINE measures the default until it is known, TUNING asks the policy, CONFIRMING pits the proposed
setting against the baseline in alternating windows, HOLDING rests. Where trials fail in a row, and
one of them is the baseline's, whatever is wrong is not the setting: the study is PAUSED.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner import guard
from tuner.core import (
    Candidate,
    Done,
    Estimate,
    Evidence,
    Past,
    Phase,
    Plan,
    Policy,
    Row,
    Setting,
    SettingKey,
    Study,
    Trial,
    TrialState,
    Wait,
    capacity_lost,
    counted,
    pool_windows,
    ranked,
    rate_of,
    render_setting,
    same_band,
    saving,
    setting_key,
    weigh,
)

BASELINE_WINDOWS = 2
BASELINE_TRIES = 6
CONFIRM_WINDOWS = 2
CONFIRM_TRIES = 5
CONFIRM_CANDIDATES = 3
CONFIRM_MOST = 30
FAILED_IN_A_ROW = 4
"""After so many failed trials in a row the baseline has to show that anything works: our choice."""
LIMIT_NOT_MET = "LIMIT NOT MET"
"""How the reason begins where what is held breaks a limit."""
RATE_CHANGED = 2
"""So many trials in a row at another rate mean that the load is not the baseline's any more."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Run a trial of this setting in the study's present phase."""

    setting: Setting
    why: str


@dataclass(frozen=True, slots=True)
class Move:
    """Go to another phase."""

    phase: Phase
    why: str
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes."""

    why: str


Step = Assign | Move | Rest


def next_step(past: Past, policy: Policy) -> Step:
    """Return the study's next step. Call it only while no trial is running."""
    study = past.study
    trials = tuple(t for t in past.trials if t.state is not TrialState.ABORTED)
    doubt = _doubt(past, trials)
    if doubt is not None:
        return doubt
    if study.phase is Phase.BASELINE:
        return _baseline(past, trials)
    if study.phase is Phase.TUNING:
        return _tuning(past, trials, policy)
    if study.phase is Phase.CONFIRMING:
        return _confirming(past, trials)
    return Rest(f"the study is {study.phase}")


def _hold_baseline(study: Study, evidence: Evidence, why: str) -> Move:
    """Return the move to holding the baseline, which says so where that breaks a limit."""
    limit = evidence.broken
    if limit is not None:
        shown = evidence.baseline[limit.metric].mean
        at = f"{limit.metric} {shown:.4g}, the limit is {limit.op} {limit.value:.4g}"
        why = f"{LIMIT_NOT_MET}: holding the baseline ({at}); {why}"
    return Move(Phase.HOLDING, why, Plan.single(study.baseline))


def needed_metrics(study: Study) -> tuple[str, ...]:
    """Return the metrics without which a window is no evidence for the study."""
    names = [study.objective.metric, *(c.metric for c in study.constraints)]
    return tuple(dict.fromkeys(names))


def _of_this_phase(study: Study, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials made since the study last came to its phase."""
    return [t for t in trials if t.phase is study.phase and t.number >= study.phase_since]


def _doubt(past: Past, trials: Sequence[Trial]) -> Step | None:
    """Return what to do where one trial after the other fails: ask the baseline, then pause.

    A device that somebody has to see to (it is lost, or the actuator has paused it) fails at any
    setting, and would fail at every further one.
    """
    study = past.study
    latest = _of_this_phase(study, trials)[-FAILED_IN_A_ROW:]
    if len(latest) < FAILED_IN_A_ROW or any(t.state is not TrialState.FAILED for t in latest):
        return None
    why = f"{FAILED_IN_A_ROW} trials in a row failed"
    if any(t.tries(study.baseline) for t in latest):
        said = latest[-1].reason or "no reason given"
        return Move(Phase.PAUSED, f"{why}, at the baseline too; the last: {said}")
    if study.phase is Phase.TUNING and past.left <= 0:
        return None
    return Assign(study.baseline, f"{why}: does the baseline still work?")


def _baseline(past: Past, trials: Sequence[Trial]) -> Step:
    study = past.study
    windows = _of_this_phase(study, trials)
    needed = set(needed_metrics(study))
    good = [t for t in windows if t.state is TrialState.COMPLETED and needed <= set(t.shown)]
    if len(good) >= BASELINE_WINDOWS:
        baseline = past.evidence.baseline
        vain = next((c.metric for c in study.constraints if c.limit(baseline) is None), None)
        if vain is not None:
            why = f"{vain} is {baseline[vain].mean:g} at the baseline"
            return Move(Phase.PAUSED, f"{why}: no limit is relative to that; set an absolute one")
        return Move(Phase.TUNING, f"the baseline is known from {len(good)} windows")
    if len(windows) >= BASELINE_TRIES:
        last = windows[-1]
        return _hold_baseline(
            study,
            past.evidence,
            f"the baseline could not be measured in {len(windows)} windows; the last was "
            f"{last.state}: {last.reason or 'no reason given'}",
        )
    return Assign(study.baseline, f"baseline window {len(good) + 1} of {BASELINE_WINDOWS}")


def _tuning(past: Past, trials: Sequence[Trial], policy: Policy) -> Step:
    study, evidence = past.study, past.evidence
    if past.limits is None:
        return Move(Phase.BASELINE, "the baseline is not known")
    if _rate_changed(study, trials):
        return Move(Phase.BASELINE, "the arrival rate is not the baseline's any more")
    suggestion = policy.suggest(past)
    if isinstance(suggestion, Wait):
        return Rest(suggestion.why)
    if isinstance(suggestion, Done):
        return _proposal(study, evidence, trials, suggestion.plan, suggestion.why)
    refusal = guard.objection(study, evidence, trials, suggestion.setting) or guard.risk(
        study, evidence, suggestion.predicted
    )
    if refusal is not None:
        why = f"the guard refused {render_setting(suggestion.setting)}: {refusal}"
    elif past.left <= 0:
        why = f"all {study.terms.trials} trials are spent"
    else:
        return Assign(suggestion.setting, suggestion.why)
    best = next(iter(_rivals(study, evidence)), None)
    if best is None:
        return _hold_baseline(study, evidence, why)
    return _proposal(study, evidence, trials, Plan.single(best.setting), why)


def _rate_changed(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether the latest trials were all contaminated by another rate than the baseline's."""
    rates = [rate_of(t) for t in trials if t.tries(study.baseline) and t.state.evidence]
    latest = _of_this_phase(study, trials)[-RATE_CHANGED:]
    return len(latest) == RATE_CHANGED and all(
        t.state is TrialState.CONTAMINATED and not same_band(rate_of(t), rates[-1]) for t in latest
    )


def _proposal(
    study: Study, evidence: Evidence, trials: Sequence[Trial], plan: Plan, why: str
) -> Move:
    """Move to confirming a plan, unless it is the baseline or the guard speaks against a row."""
    if all(setting_key(s) == setting_key(study.baseline) for s in settings_of(plan)):
        return _hold_baseline(study, evidence, why)
    for setting in settings_of(plan):
        refusal = guard.objection(study, evidence, trials, setting)
        if refusal is not None:
            said = f"the guard refused the plan's {render_setting(setting)}: {refusal}"
            best = next(iter(_rivals(study, evidence)), None)
            if best is None:
                return _hold_baseline(study, evidence, said)
            return Move(Phase.CONFIRMING, said, Plan.single(best.setting))
    return Move(Phase.CONFIRMING, why, plan)


def settings_of(plan: Plan) -> list[Setting]:
    """Return the distinct settings of a plan, in the order of its rows."""
    return list({setting_key(row.setting): row.setting for row in plan.rows}.values())


def _rivals(study: Study, evidence: Evidence) -> list[Candidate]:
    """Return the feasible candidates other than the baseline, best first."""
    key = setting_key(study.baseline)
    return [c for c in ranked(study, evidence) if setting_key(c.setting) != key]


def _confirming(past: Past, trials: Sequence[Trial]) -> Step:
    study, evidence = past.study, past.evidence
    windows = _of_this_phase(study, trials)
    if study.plan is None or evidence.limits is None:
        return Move(Phase.BASELINE, "the baseline is not known any more")
    if len(windows) >= CONFIRM_MOST:
        return _hold_baseline(study, evidence, f"{len(windows)} confirming windows settled nothing")
    struck: list[str] = []
    for contender in _contenders(study, study.plan, trials):
        fates = {
            setting_key(s): _fate(study, s, windows, evidence)
            for s in settings_of(contender)
            if setting_key(s) != setting_key(study.baseline)
        }
        lost = {key: fate for key, fate in fates.items() if fate.struck}
        struck += [
            f"{render_setting(s)}: {lost[setting_key(s)].why}"
            for s in settings_of(contender)
            if setting_key(s) in lost
        ]
        plan = _without(study, contender, lost)
        if plan is None:
            continue
        won: list[str] = []
        for setting in settings_of(plan):
            fate = fates.get(setting_key(setting), THE_BASELINE)
            if not fate.won:
                return _alternate(study, setting, windows)
            won.append(fate.why)
        return Move(Phase.HOLDING, _in_words(study, plan, won, struck), plan)
    reason = "; ".join(struck) or "nothing was left to confirm"
    return _hold_baseline(study, evidence, f"no setting was confirmed ({reason})")


def _without(study: Study, plan: Plan, lost: Collection[SettingKey]) -> Plan | None:
    """Return the plan with the baseline in the place of the settings lost; None if no other is left.

    A setting that did not win says nothing against those of the plan's other rows.
    """
    baseline = study.baseline
    rows: list[Row] = []
    for row in plan.rows:
        setting = baseline if setting_key(row.setting) in lost else row.setting
        if rows and setting_key(rows[-1].setting) == setting_key(setting):
            rows.pop()
        rows.append(replace(row, setting=setting))
    if lost and all(setting_key(row.setting) == setting_key(baseline) for row in rows):
        return None
    return replace(plan, rows=tuple(rows)) if lost else plan


def _in_words(study: Study, plan: Plan, won: Sequence[str], struck: Sequence[str]) -> str:
    """Return why a plan is held: what each of its settings won, and what was struck of it."""
    if len(plan.rows) == 1:
        return won[0]
    told = zip(settings_of(plan), won, strict=True)
    texts = [f"{render_setting(setting)}: {why}" for setting, why in told]
    lost = [f"the baseline instead of {text}" for text in struck]
    return "; ".join([*texts, *lost])


def _contenders(study: Study, proposed: Plan, trials: Sequence[Trial]) -> list[Plan]:
    """Return what may still be confirmed, in order: the proposal, then the next best measured.

    The order must not change while windows come in, so rivals are ranked without them. Where the
    baseline breaks a limit the last is what is furthest from it: not the baseline at any price.
    """
    before = weigh(study, [t for t in trials if t.number < study.phase_since])
    known = {setting_key(s) for s in settings_of(proposed)}
    rivals = [c for c in _rivals(study, before) if setting_key(c.setting) not in known]
    if before.broken is not None and len(rivals) >= CONFIRM_CANDIDATES:
        metric, sign = before.broken.metric, before.broken.sign
        safest = min(rivals[1:], key=lambda c: sign * c.estimates[metric].mean)
        rivals = [*rivals[: CONFIRM_CANDIDATES - 2], safest]
    return [proposed, *(Plan.single(c.setting) for c in rivals)][:CONFIRM_CANDIDATES]


@dataclass(frozen=True, slots=True)
class _Fate:
    won: bool
    struck: bool
    why: str = ""


THE_BASELINE = _Fate(True, False, "the baseline")
"""A plan's row at the baseline itself has nothing to win."""


def _fate(study: Study, setting: Setting, windows: Sequence[Trial], evidence: Evidence) -> _Fate:
    """Judge a setting by its own confirming windows: the one that proposed it was selected.

    Its rival is the baseline in the windows alternating with its own, so what comes later for other
    contenders changes nothing. A baseline that breaks a limit is no rival: what is proven to keep all
    wins, whatever it costs.
    """
    in_force = evidence.limits or ()
    own = [t for t in windows if t.tries(setting)]
    good = [t for t in own if t.state is TrialState.COMPLETED]
    failed = [t for t in own if t.state is TrialState.FAILED]
    bad = next((t for t in own if t.censored), None)
    if bad is None and len(failed) >= guard.MOST_FAILURES:
        bad = failed[-1]
    if bad is not None:
        return _Fate(False, True, f"trial {bad.number} {bad.state}: {bad.reason}")
    if len(good) < CONFIRM_WINDOWS:
        spent = len(own) >= CONFIRM_TRIES
        return _Fate(False, spent, f"{len(own)} windows were not enough" if spent else "")
    shown = _pools(study, good)
    if not guard.may_hold(shown, in_force):
        if len(own) < CONFIRM_TRIES and guard.may_be_shown(shown, in_force, study.quantities):
            return _Fate(False, False)
        return _Fate(False, True, "its confirming windows do not prove that the limits hold")
    reference = _pools(study, _alternating_with(study, good, windows))
    return _compared(study, evidence, reference, shown)


def _compared(
    study: Study,
    evidence: Evidence,
    reference: Mapping[str, Estimate],
    shown: Mapping[str, Estimate],
) -> _Fate:
    """Judge what a setting gains over the baseline, and say what that costs of the capacity."""
    metric, score = study.objective.metric, study.objective.score
    before, after = score(reference), score(shown)
    if before is None or after is None:
        return _Fate(False, True, f"{metric} was not measured")
    gain = saving(before, after, study.objective.sign)
    percent = f"{100 * gain.mean:.1f} ± {100 * gain.stderr:.1f} %"
    lost = capacity_lost(reference, shown, needed_metrics(study), study.quantities)
    cost = f"; {lost}" if lost else ""
    if evidence.broken is not None:
        how = f"{percent} better" if gain.mean >= 0.0 else f"{percent.removeprefix('-')} worse"
        kept = f"confirmed: it keeps {evidence.broken.in_short}, which the baseline breaks"
        return _Fate(True, False, f"{kept}; {metric} {how} than the baseline{cost}")
    if gain.low <= 0.0:
        return _Fate(False, True, f"its gain over the baseline is not proven ({percent})")
    return _Fate(True, False, f"confirmed: {metric} {percent} better than the baseline{cost}")


def _alternating_with(study: Study, own: Sequence[Trial], windows: Sequence[Trial]) -> list[Trial]:
    """Return the baseline's windows since the setting before this one and up to its last."""
    baseline = [t for t in windows if t.tries(study.baseline) and t.state is TrialState.COMPLETED]
    first, last = own[0].number, own[-1].number
    strangers = [t.number for t in windows if t.number < first and not t.tries(study.baseline)]
    since = max(strangers, default=0)
    return [t for t in baseline if since < t.number < last]


def duel(
    study: Study, trials: Sequence[Trial], setting: Setting
) -> tuple[dict[str, Estimate], dict[str, Estimate]] | None:
    """Return what baseline and setting showed in their latest alternating windows, None without any."""
    windows = [t for t in counted(study, trials) if t.phase is Phase.CONFIRMING]
    own = [t for t in windows if t.tries(setting) and t.state is TrialState.COMPLETED]
    if not own:
        return None
    reference = _pools(study, _alternating_with(study, own, windows))
    return (reference, _pools(study, own)) if reference else None


def _pools(study: Study, windows: Sequence[Trial]) -> dict[str, Estimate]:
    return pool_windows([t.shown for t in windows], study.quantities)


def _alternate(study: Study, setting: Setting, windows: Sequence[Trial]) -> Assign:
    """Return the next of the alternating windows: baseline, contender, baseline, contender."""
    completed = [t for t in windows if t.state is TrialState.COMPLETED]
    if not completed or not completed[-1].tries(study.baseline):
        return Assign(study.baseline, "confirming: the baseline's turn")
    return Assign(setting, "confirming: the proposed setting's turn")
