"""The confirming phase: each row of a proposed plan against the baseline, in alternating windows.

A row is confirmed at the load that it was decided at, if a trial can request it; otherwise under
the load that arrives. A table of speculation lengths is then confirmed as a whole, too
(`tuner.study.speculation_table`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner import guard
from tuner.core import (
    ANYWHERE,
    Candidate,
    Context,
    Estimate,
    Evidence,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Study,
    Trial,
    TrialState,
    Worth,
    capacity_lost,
    counted,
    improvement,
    pool_windows,
    quantity_of,
    render_setting,
    setting_key,
    slower_by,
    weigh,
    windows,
)
from tuner.study.moves import (
    Assign,
    Move,
    hold_baseline,
    in_words,
    needed_metrics,
    of_this_phase,
    rivals,
    without,
)
from tuner.study.sequential_tests import PROVEN, beyond_scatter
from tuner.study.speculation_table import confirm_table, switches

CONFIRM_WINDOWS = 2
LOAD_WINDOWS = 5
"""Windows of a study that follows a load: few windows meet only a part of a load that rises and falls."""
MORE_TRIES = 3
"""Further windows of a setting, and of the baseline beside them, if some are not completed or the limits
are not proven yet."""
MOST_COMPARED = 5
"""Windows of a setting up to which a positive gain that is not proven yet is measured further."""
CONFIRM_CANDIDATES = 3
LEAST_VALUE = 1e-9
"""A limit of 0 is compared as this."""
CONFIRM_MOST = 2 * (CONFIRM_WINDOWS + MORE_TRIES) * CONFIRM_CANDIDATES
"""The most windows of a plan with one row, if none is disturbed."""


def confirmation_load(study: Study, plan: Plan, row: Row) -> Context:
    """Return the load at which a row is confirmed; empty if none can be requested."""
    return plan.context(row) if plan.by in study.askable and not study.terms.plan_by else ANYWHERE


def confirming(past: Past, trials: Sequence[Trial]) -> Assign | Move:
    """Return the next step of confirming: a window, or in the end the hold."""
    study = past.study
    if study.plan is None or past.evidence.limits is None:
        return Move(Phase.BASELINE, "the baseline is missing")
    phase = of_this_phase(study, trials)
    rejected: dict[str, None] = {}
    by = study.terms.plan_by
    proposed = Plan.single(study.plan.rows[0].setting) if by else study.plan
    for contender in _contenders(past, proposed, trials):
        results = [_result(past, contender, row, phase) for row in contender.rows]
        rows = list(zip(contender.rows, results, strict=True))
        rejected |= dict.fromkeys(row_text(study, contender, *one) for one in rows if one[1].lost)
        plan = without(study, contender, [k for k, (_, result) in enumerate(rows) if result.lost])
        if plan is None:
            if any(result.no_gain for result in results):
                break
            continue
        pending = next((row for row, result in rows if not (result.won or result.lost)), None)
        if pending is not None:
            at = confirmation_load(study, contender, pending)
            return alternate(study, pending.setting, at, phase)
        why = _reason(study, contender, rows, rejected)
        if not switches(study, plan):
            return Move(Phase.HOLDING, why, plan)
        outcome = confirm_table(past, plan, phase)
        if isinstance(outcome, Assign):
            return outcome
        if outcome.plan is not None:
            return Move(Phase.HOLDING, f"{why}; {outcome.why}", outcome.plan)
        rejected[outcome.why] = None
    reason = "; ".join(rejected) or "no setting left to confirm"
    return hold_baseline(study, past.evidence, f"no setting was confirmed ({reason})")


Duel = tuple[dict[str, Estimate], dict[str, Estimate]]
"""The metrics of the baseline, and those of a setting."""


def duel(
    study: Study, trials: Sequence[Trial], setting: Setting, at: Context = ANYWHERE
) -> Duel | None:
    """Return the metrics of baseline and setting in the windows of `duel_windows`; None without any."""
    both = duel_windows(study, trials, setting, at)
    return (_pools(study, both[0]), _pools(study, both[1])) if both else None


def duel_windows(
    study: Study, trials: Sequence[Trial], setting: Setting, at: Context = ANYWHERE
) -> tuple[list[Trial], list[Trial]] | None:
    """Return the latest alternating windows of baseline and setting, if any.

    Only windows that requested the load `at`; empty for those that requested none.
    """
    there = windows(counted(study, trials), phase=Phase.CONFIRMING, requested=at)
    own = _measured(study, there, setting)
    baseline = _alternating_with(study, own, there) if own else []
    return (baseline, own) if baseline else None


def row_duel(past: Past, plan: Plan, row: Row) -> Duel | None:
    """Return the metrics of baseline and setting in the windows that confirm a row; None without any."""
    study = past.study
    return duel(study, past.trials, row.setting, confirmation_load(study, plan, row))


@dataclass(frozen=True, slots=True)
class ConfirmResult:
    """The state of a row: confirmed, lost, or open; and why.

    `no_gain`: the row met its limits, but has no proven gain.
    """

    won: bool
    lost: bool
    why: str = ""
    no_gain: bool = False


THE_BASELINE = ConfirmResult(True, False, "the baseline")
"""The result of a row that is the baseline itself, which needs no gain."""
PENDING = ConfirmResult(False, False)


def lost(why: str, *, no_gain: bool = False) -> ConfirmResult:
    """Return the result of a lost row, with the reason."""
    return ConfirmResult(False, True, why, no_gain)


def row_text(study: Study, plan: Plan, row: Row, result: ConfirmResult) -> str:
    """Return the state of a row as text."""
    at = confirmation_load(study, plan, row)
    load = f" at {in_words(at)}" if at else ""
    return f"{render_setting(row.setting)}{load}: {result.why}"


def _reason(
    study: Study,
    plan: Plan,
    judged: Sequence[tuple[Row, ConfirmResult]],
    rejected: Mapping[str, None],
) -> str:
    """Return why a plan is held: the gain of each row, rejected settings, and the loads."""
    if len(plan.rows) == 1:
        texts = [judged[0][1].why]
    else:
        texts = list(dict.fromkeys(row_text(study, plan, *one) for one in judged if one[1].won))
        texts += [f"the baseline is held instead of {text}" for text in rejected]
    if any(row.at is not None and not confirmation_load(study, plan, row) for row in plan.rows):
        texts.append(f"confirmed under the present load, because a trial cannot set {plan.by}")
    return "; ".join(texts)


def _contenders(past: Past, proposed: Plan, trials: Sequence[Trial]) -> list[Plan]:
    """Return the settings that may still be confirmed, in order: the proposal, then the next best.

    If the study follows a load, not those with a window above a limit.

    The order must not change while windows come in, so rivals are ranked without them. If the
    baseline breaks a limit, the last contender is the one furthest from it, to avoid the baseline
    at any price.
    """
    study = past.study
    before = weigh(study, [t for t in trials if t.number < study.phase_since])
    in_plan = {setting_key(row.setting) for row in proposed.rows}
    others = [c for c in rivals(study, before) if setting_key(c.setting) not in in_plan]
    if before.broken is not None and len(others) >= CONFIRM_CANDIDATES:
        metric, sign = before.broken.metric, before.broken.sign
        safest = min(others[1:], key=lambda c: sign * c.estimates[metric].mean)
        others = [*others[: CONFIRM_CANDIDATES - 2], safest]
    if study.terms.plan_by and study.plan is not None and study.plan.by:
        others = _nearer_baseline(before, proposed.rows[0].setting, others)
    plans = [proposed, *(Plan.single(c.setting) for c in others)]
    kept = [p for p in plans if not _windows_above(study, before, p.rows[0].setting)]
    return (kept or plans)[:CONFIRM_CANDIDATES]


def _nearer_baseline(
    evidence: Evidence, held: Setting, others: Sequence[Candidate]
) -> list[Candidate]:
    """Return the settings to try where a held one may break a limit at a higher load.

    Candidates are farther from the limits than it: first the middle one, then the farthest.
    """

    def nearness(candidate: Candidate) -> float:
        shown = candidate.estimates
        return max(
            x.sign * (shown[x.metric].mean - x.value) / max(abs(x.value), LEAST_VALUE)
            for x in evidence.limits or ()
        )

    own = evidence.of(held)
    if own is None or not evidence.limits:
        return [*others]
    better = sorted((c for c in others if nearness(c) < nearness(own)), key=nearness)
    return [better[len(better) // 2], better[0]] if len(better) > 1 else better


def _windows_above(study: Study, evidence: Evidence, setting: Setting) -> int:
    """Return the number of a setting's windows above a limit; 0 if the study follows no load.

    A p99 over all windows can keep a limit that one window in ten breaks.
    """
    own = evidence.of(setting) if study.terms.plan_by else None
    return sum(
        any(
            limit.metric in t.shown and not limit.holds(t.shown[limit.metric].mean)
            for limit in evidence.limits or ()
        )
        for t in (own.trials if own is not None else ())
    )


def least_windows(study: Study) -> int:
    """Return the number of windows that confirm a setting, and of the baseline beside them."""
    return LOAD_WINDOWS if study.terms.plan_by else CONFIRM_WINDOWS


def _result(past: Past, plan: Plan, row: Row, phase: Sequence[Trial]) -> ConfirmResult:
    """Judge a row by the windows that requested its load."""
    study = past.study
    at = confirmation_load(study, plan, row)
    own = windows(phase, requested=at)
    result = judged(study, row.setting, own, past.at(at))
    return _unmeasurable(study, row.setting, own, at) if result == PENDING else result


def judged(
    study: Study,
    setting: Setting,
    there: Sequence[Trial],
    evidence: Evidence,
) -> ConfirmResult:
    """Judge a setting by its own confirming windows only: the proposing one was selected.

    The baseline itself is not judged. The rival is the baseline in the windows that alternate with
    the setting's own, so that later windows for other contenders change nothing.
    """
    if study.rests(setting):
        return THE_BASELINE
    own = windows(there, setting)
    good = _measured(study, own)
    failed = [t for t in own if t.state is TrialState.FAILED]
    bad = next((t for t in own if t.censored), None)
    if bad is None and len(failed) >= guard.MOST_FAILURES:
        bad = failed[-1]
    if bad is not None:
        return lost(f"trial {bad.number} {bad.state}: {bad.reason}")
    if above := _windows_above(study, evidence, setting):
        return lost(f"{above} of its windows were above a limit")
    most, spent = least_windows(study) + MORE_TRIES, len(own) >= most_tries(study)
    few = f"only {len(good)} of {len(own)} confirming windows were completed"
    if len(good) < least_windows(study):
        return lost(few) if spent else PENDING
    shown = _pools(study, good)
    if not guard.may_hold(shown, evidence.limits):
        may_be = guard.may_be_shown(shown, evidence.limits or (), study.quantities)
        if len(good) < most and not spent and may_be:
            return PENDING
        return lost("its confirming windows do not prove that it meets the limits")
    result = compared(
        study,
        evidence,
        [t.shown for t in _alternating_with(study, good, there)],
        [t.shown for t in good],
        last=len(good) >= MOST_COMPARED,
    )
    return lost(few) if spent and result == PENDING else result


def _unmeasurable(
    study: Study, setting: Setting, there: Sequence[Trial], at: Context
) -> ConfirmResult:
    """Return a lost result if the baseline cannot be measured beside the setting, else an open one."""
    base = windows(there, study.baseline, since=_began(study, setting, there))
    fails = at and sum(t.state is TrialState.FAILED for t in base) >= guard.MOST_FAILURES
    if not fails and len(base) < most_tries(study):
        return PENDING
    load, reason = in_words(at) or "the present load", base[-1].reason or "no reason given"
    return lost(f"the baseline could not be measured at {load}: {reason}")


def compared(
    study: Study,
    evidence: Evidence,
    baseline: Sequence[Mapping[str, Estimate]],
    own: Sequence[Mapping[str, Estimate]],
    *,
    last: bool,
) -> ConfirmResult:
    """Judge a setting's gain over the baseline in the windows of both, and report its cost.

    A positive gain that is not proven stays open until the `last` look. If the baseline breaks a
    limit, a setting that is proven to keep all limits wins at any cost.
    """
    metric, score = study.objective.metric, study.objective.score
    reference, shown = (pool_windows(each, study.quantities) for each in (baseline, own))
    before, after = score(reference), score(shown)
    if before is None or after is None:
        return lost(f"{metric} was not measured")
    gain = improvement(before, after, study.objective.sign)
    how = "better" if gain.amount.mean >= 0.0 else "worse"
    size = f"{gain.text(quantity_of(metric, study.quantities).unit)} {how}"
    seen = reference, shown, needed_metrics(study), study.quantities
    cost = "".join(f"; {loss}" for loss in (capacity_lost(*seen), slower_by(*seen)) if loss)
    if evidence.broken is not None:
        kept = f"confirmed: it meets {evidence.broken.in_short}, which the baseline breaks"
        return ConfirmResult(True, False, f"{kept}; {metric} {size} than the baseline{cost}")
    scores = ([e.mean for w in each if (e := score(w))] for each in (baseline, own))
    if gain.amount.mean <= PROVEN * gain.amount.stderr or not beyond_scatter(*scores):
        if gain.amount.mean > 0.0 and not last:
            return PENDING
        return lost(f"its gain over the baseline is not proven ({size})", no_gain=True)
    least = study.exploration.min_saving
    if gain.relative and gain.amount.mean < least:
        return lost(f"its gain over the baseline ({size}) is below min_saving ({least:.1%})")
    why = f"confirmed: {metric} {size} than the baseline{cost}"
    return ConfirmResult(True, False, why)


def most_tries(study: Study) -> int:
    """Return the most windows of a setting, and of the baseline beside it, with those that show nothing."""
    return 2 * (least_windows(study) + MORE_TRIES)


def _measured(study: Study, trials: Sequence[Trial], *settings: Setting) -> list[Trial]:
    """Return the completed windows that have all metrics that the study needs."""
    needed = set(needed_metrics(study))
    return [t for t in windows(trials, *settings, least=Worth.COMPLETED) if needed <= set(t.shown)]


def _began(study: Study, setting: Setting, there: Sequence[Trial]) -> int:
    """Return the number after the last window of the setting before this one."""
    first = next((t.number for t in windows(there, setting)), math.inf)
    others = [t.number for t in there if not t.tries(study.baseline) and not t.tries(setting)]
    return 1 + max((n for n in others if n < first), default=0)


def _alternating_with(study: Study, own: Sequence[Trial], there: Sequence[Trial]) -> list[Trial]:
    """Return the baseline's windows from after the previous setting up to this one's last."""
    since = _began(study, own[0].setting, there)
    baseline = _measured(study, there, study.baseline)
    return [t for t in baseline if since <= t.number < own[-1].number]


def _pools(study: Study, own: Sequence[Trial]) -> dict[str, Estimate]:
    """Return each metric of the windows, pooled."""
    return pool_windows([t.shown for t in own], study.quantities)


def alternate(study: Study, setting: Setting, at: Context, phase: Sequence[Trial]) -> Assign:
    """Return the next of the alternating windows: baseline, contender, baseline, contender."""
    done = _measured(study, windows(phase, requested=at))
    turn = bool(done) and done[-1].tries(study.baseline)
    what = "the proposed setting" if turn else "the baseline"
    load = f", at {in_words(at)}" if at else ""
    return Assign(setting if turn else study.baseline, f"confirming: measuring {what}{load}", at)
