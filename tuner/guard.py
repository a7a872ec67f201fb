"""The only rules for "safe to try", "safe to hold" and "abort now", as pure functions.

The optimiser excludes candidates by them, the loop checks every policy's suggestion, and the agent cuts
windows short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.core import (
    NO_ANSWER,
    UNDECLARED,
    Estimate,
    Evidence,
    Limit,
    Prediction,
    Quantities,
    Safety,
    Setting,
    Study,
    Trial,
    TrialState,
    TuningError,
    Value,
    Verdict,
    judge,
    quantity_of,
    render_setting,
)

ABORT_MARGIN = 0.1
"""A window is cut short only if its value is surely beyond the limit by this share of it: our choice."""

LEAST_CHANCE = 0.02
"""If the baseline itself breaks a limit, this chance to keep it suffices for a trial; `off` needs none."""

MOST_FAILURES = 2
"""A setting that failed this often is not tried again."""


REFUSED: Mapping[Safety, float] = {
    Safety.STRICT: 0.25,
    Safety.BALANCED: LEAST_CHANCE,
    Safety.ADVISE: LEAST_CHANCE,
    Safety.OFF: 0.0,
}
"""The least chance to keep a limit, as the policy predicts it, that a trial needs: our choice."""


def chance(predicted: Prediction, limit: Limit) -> float:
    """Return the probability that a predicted value keeps a limit, by the prediction's distribution."""
    mean, sd, bound = predicted.mean, predicted.sd, limit.value
    if sd > 0.0 and predicted.lognormal and bound > 0.0:
        variance = math.log1p((sd / mean) ** 2)
        mean, sd, bound = math.log(mean) - variance / 2.0, math.sqrt(variance), math.log(bound)
    room = limit.sign * (bound - mean)
    if sd <= 0.0:
        return float(room >= 0.0)
    return math.erfc(-room / sd / math.sqrt(2.0)) / 2.0


def risk(study: Study, evidence: Evidence, predicted: Mapping[str, Prediction]) -> str | None:
    """Return why a setting with these predictions is too risky to try; None if it is not.

    A setting without predictions is not refused: its window is cut short if it breaks a limit. If the
    baseline breaks a limit, any fair chance is taken, because a study that ends would hold the baseline.
    """
    least = REFUSED[study.terms.safety]
    least = least if evidence.broken is None else min(least, LEAST_CHANCE)
    for limit in evidence.limits or ():
        if limit.metric in predicted and chance(predicted[limit.metric], limit) < least:
            return f"it is expected to break {limit.in_short} ({study.terms.safety} safety)"
    return None


def clearly_broken(estimates: Mapping[str, Estimate], limits: Sequence[Limit]) -> Limit | None:
    """Return the limit that a running window has broken beyond doubt; None if it has broken none.

    Beyond doubt means that the nearer 95 % bound is outside the limit, and the estimate itself is at least
    a tenth beyond it. So a window close to the limit is measured to its end.
    """
    for limit in limits:
        estimate = estimates.get(limit.metric)
        if estimate is None or limit.verdict(estimate) is not Verdict.INFEASIBLE:
            continue
        if limit.sign * (estimate.mean - limit.value) >= ABORT_MARGIN * abs(limit.value):
            return limit
    return None


def may_hold(estimates: Mapping[str, Estimate], limits: Sequence[Limit] | None) -> bool:
    """Return whether a setting with these estimates may be held: only if it is proven feasible."""
    return limits is not None and judge(estimates, limits) is Verdict.FEASIBLE


def may_be_shown(
    estimates: Mapping[str, Estimate],
    limits: Sequence[Limit],
    declared: Quantities = UNDECLARED,
) -> bool:
    """Return whether further windows can still prove the limits that these estimates leave unsure.

    They narrow the bound of a mean and, from the third window on, that of a tail. They cannot bound a tail
    of too few requests, nor clear a proven violation.
    """
    doubtful = [x for x in limits if x.verdict(estimates.get(x.metric)) is not Verdict.FEASIBLE]
    return all(
        x.metric in estimates
        and (
            not quantity_of(x.metric, declared).tail
            or math.isfinite(_bound(estimates[x.metric], x))
        )
        and x.verdict(estimates[x.metric]) is Verdict.UNSURE
        and x.holds(estimates[x.metric].mean)
        for x in doubtful
    )


def _bound(estimate: Estimate, limit: Limit) -> float:
    """Return the bound of an estimate that decides whether a limit is kept."""
    return estimate.high if limit.sign > 0.0 else estimate.low


def objection(
    study: Study, evidence: Evidence, trials: Sequence[Trial], setting: Setting
) -> str | None:
    """Return why a setting must not be tried; None if it may be.

    It must be a point of the space. It must not have failed twice, have a value with which the workload did
    not start, or have windows that prove a limit broken.
    """
    try:
        study.space.check(setting)
    except TuningError as error:
        return str(error)
    failures = [t for t in trials if t.state is TrialState.FAILED and t.tries(setting)]
    if len(failures) >= MOST_FAILURES:
        return f"it failed {len(failures)} times; last reason: {failures[-1].reason}"
    if at_fault := silencing(study, trials) & setting.items():
        return f"with {render_setting(dict(at_fault))} the workload {NO_ANSWER}"
    candidate = evidence.of(setting)
    broken = None if candidate is None else evidence.broken_by(candidate.estimates)
    return None if broken is None else f"it breaks {broken.in_short} in its windows"


def silencing(study: Study, trials: Sequence[Trial]) -> frozenset[tuple[str, Value]]:
    """Return the knobs and values with which the workload did not answer after its restart.

    A value of a knob that restarts the workload is suspect if no window was measured with it and it is not
    the baseline's. A value is at fault if it is the only suspect of a failed trial, or else the only
    suspect that several failed trials share.
    """
    failed = [t for t in trials if t.state is TrialState.FAILED and NO_ANSWER in t.reason]
    if not failed:
        return frozenset()
    restarts = {knob.name for knob in study.space.knobs if knob.cost.restart}
    works = {*study.baseline.items()}
    for trial in trials:
        works |= trial.setting.items() if trial.measurement is not None else set()
    suspects = [{(k, v) for k, v in t.setting.items() if k in restarts} - works for t in failed]
    alone = {value for values in suspects if len(values) == 1 for value in values}
    left = [values for values in suspects if not values & alone]
    for value in set[tuple[str, Value]]().union(*left):
        having = [values for values in left if value in values]
        if len(having) > 1 and len(set.intersection(*having)) == 1:
            alone.add(value)
    return frozenset(alone)
