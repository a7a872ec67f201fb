"""What a study does next, derived from its trials alone: after a crash the same step comes out.

BASELINE measures the default until it is known, TUNING asks the policy, CONFIRMING pits the proposed
setting against the baseline in alternating windows, HOLDING rests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner import guard
from tuner.core import (
    Candidate,
    Done,
    Estimate,
    Evidence,
    Limit,
    Past,
    Phase,
    Plan,
    Policy,
    Setting,
    Study,
    Trial,
    TrialState,
    Try,
    Wait,
    counted,
    pool_windows,
    ranked,
    render_setting,
    setting_key,
    weigh,
)

BASELINE_WINDOWS = 2
BASELINE_TRIES = 6
CONFIRM_WINDOWS = 2
CONFIRM_TRIES = 5
CONFIRM_CANDIDATES = 3
CONFIRM_MOST = 24


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
    study, trials = past.study, counted(past.study, past.trials)
    if study.phase is Phase.BASELINE:
        return _baseline(study, trials)
    if study.phase is Phase.TUNING:
        return _tuning(past, trials, policy)
    if study.phase is Phase.CONFIRMING:
        return _confirming(study, trials)
    return Rest(f"the study is {study.phase}")


def _hold_baseline(study: Study, why: str) -> Move:
    return Move(Phase.HOLDING, why, Plan.single(study.baseline))


def _baseline(study: Study, trials: Sequence[Trial]) -> Step:
    windows = [t for t in trials if t.phase is Phase.BASELINE]
    good = [t for t in windows if t.state is TrialState.COMPLETED]
    if len(good) >= BASELINE_WINDOWS:
        return Move(Phase.TUNING, f"the baseline is known from {len(good)} windows")
    if len(windows) >= BASELINE_TRIES:
        last = windows[-1]
        return _hold_baseline(
            study,
            f"the baseline could not be measured in {len(windows)} windows; the last was "
            f"{last.state}: {last.reason or 'no reason given'}",
        )
    return Assign(study.baseline, f"baseline window {len(good) + 1} of {BASELINE_WINDOWS}")


def _tuning(past: Past, trials: Sequence[Trial], policy: Policy) -> Step:
    study = past.study
    suggestion = policy.suggest(past)
    if isinstance(suggestion, Wait):
        return Rest(suggestion.why)
    if isinstance(suggestion, Done):
        return _proposal(study, suggestion.plan, suggestion.why)
    assert isinstance(suggestion, Try)
    evidence = weigh(study, trials)
    spoken = guard.objection(study, evidence, trials, suggestion.setting)
    if spoken is None:
        return Assign(suggestion.setting, suggestion.why)
    why = f"the guard refused {render_setting(suggestion.setting)}: {spoken}"
    best = next(iter(_rivals(study, evidence)), None)
    if best is None:
        return _hold_baseline(study, why)
    return _proposal(study, Plan.single(best.setting), why)


def _proposal(study: Study, plan: Plan, why: str) -> Move:
    if all(setting_key(r.setting) == setting_key(study.baseline) for r in plan.rows):
        return _hold_baseline(study, why)
    return Move(Phase.CONFIRMING, why, plan)


def _rivals(study: Study, evidence: Evidence) -> list[Candidate]:
    """Return the feasible candidates other than the baseline, best first."""
    key = setting_key(study.baseline)
    return [c for c in ranked(study, evidence) if setting_key(c.setting) != key]


def _confirming(study: Study, trials: Sequence[Trial]) -> Step:
    windows = _confirming_windows(trials)
    evidence = weigh(study, trials)
    if study.plan is None or evidence.limits is None:
        return Move(Phase.BASELINE, "the baseline is not known any more")
    if len(windows) >= CONFIRM_MOST:
        return _hold_baseline(study, f"{len(windows)} confirming windows settled nothing")
    struck: list[str] = []
    for setting in _contenders(study, study.plan, evidence):
        fate = _fate(study, setting, windows, evidence.limits)
        if fate.won:
            return Move(Phase.HOLDING, fate.why, Plan.single(setting))
        if not fate.struck:
            return _alternate(study, setting, windows)
        struck.append(f"{render_setting(setting)}: {fate.why}")
    reason = "; ".join(struck) or "nothing was left to confirm"
    return _hold_baseline(study, f"no setting was confirmed ({reason})")


def _confirming_windows(trials: Sequence[Trial]) -> list[Trial]:
    """Return the confirming windows since the last tuning trial."""
    last = max((t.number for t in trials if t.phase is Phase.TUNING), default=0)
    return [t for t in trials if t.phase is Phase.CONFIRMING and t.number > last]


def _contenders(study: Study, plan: Plan, evidence: Evidence) -> list[Setting]:
    """Return what may still be confirmed, in order: the proposal, then the next best measured.

    The order must not change while windows come in, so rivals are ranked without them.
    """
    tuned = [t for c in evidence.candidates for t in c.trials if t.phase is not Phase.CONFIRMING]
    rivals = [c.setting for c in _rivals(study, weigh(study, tuned))]
    found: dict[object, Setting] = {}
    for setting in [row.setting for row in plan.rows] + rivals:
        found.setdefault(setting_key(setting), setting)
    return list(found.values())[:CONFIRM_CANDIDATES]


@dataclass(frozen=True, slots=True)
class _Fate:
    won: bool
    struck: bool
    why: str = ""


def _fate(
    study: Study, setting: Setting, windows: Sequence[Trial], in_force: Sequence[Limit]
) -> _Fate:
    """Judge a contender by its own confirming windows: the one that proposed it was selected."""
    own = [t for t in windows if t.tries(setting)]
    good = [t for t in own if t.state is TrialState.COMPLETED]
    bad = next((t for t in own if t.state is TrialState.FAILED or t.censored), None)
    if bad is not None:
        return _Fate(False, True, f"trial {bad.number} {bad.state}: {bad.reason}")
    if len(good) < CONFIRM_WINDOWS:
        spent = len(own) >= CONFIRM_TRIES
        return _Fate(False, spent, f"{len(own)} windows were not enough" if spent else "")
    reference, shown = _pools(windows, study.baseline), _pools(windows, setting)
    if not guard.may_hold(shown, in_force):
        return _Fate(False, True, "its confirming windows do not prove that the limits hold")
    metric = study.objective.metric
    if metric not in shown or metric not in reference:
        return _Fate(False, True, f"{metric} was not measured")
    gain = saving(reference[metric], shown[metric], study.objective.sign)
    proven = gain.low > 0.0
    percent = f"{100 * gain.mean:.1f} ± {100 * gain.stderr:.1f} %"
    if not proven:
        return _Fate(False, True, f"its gain over the baseline is not proven ({percent})")
    return _Fate(True, False, f"confirmed: {metric} {percent} better than the baseline")


def duel(
    study: Study, trials: Sequence[Trial], setting: Setting
) -> tuple[dict[str, Estimate], dict[str, Estimate]] | None:
    """Return what baseline and setting showed in their alternating windows, None without any."""
    windows = _confirming_windows(counted(study, trials))
    reference, shown = _pools(windows, study.baseline), _pools(windows, setting)
    return (reference, shown) if reference and shown else None


def _pools(windows: Sequence[Trial], setting: Setting) -> dict[str, Estimate]:
    good = [t for t in windows if t.tries(setting) and t.state is TrialState.COMPLETED]
    return pool_windows([t.measurement for t in good if t.measurement is not None])


def saving(baseline: Estimate, other: Estimate, sign: float = 1.0) -> Estimate:
    """Return the share by which `other` is better than `baseline`, with its standard error."""
    share = sign * (baseline.mean - other.mean) / baseline.mean if baseline.mean else 0.0
    ratio = other.mean / baseline.mean if baseline.mean else 1.0
    relative = math.hypot(
        other.stderr / other.mean if other.mean else 0.0,
        baseline.stderr / baseline.mean if baseline.mean else 0.0,
    )
    return Estimate.of_mean(
        share,
        abs(ratio) * relative,
        min(baseline.n, other.n),
        origin=other.origin,
        scope=other.scope,
    )


def _alternate(study: Study, setting: Setting, windows: Sequence[Trial]) -> Assign:
    """Return the next of the alternating windows: baseline, contender, baseline, contender."""
    final = [t for t in windows if t.state is TrialState.COMPLETED]
    at_baseline = sum(t.tries(study.baseline) for t in final)
    if at_baseline <= len(final) - at_baseline:
        return Assign(study.baseline, "confirming: the baseline's turn")
    return Assign(setting, "confirming: the proposed setting's turn")
