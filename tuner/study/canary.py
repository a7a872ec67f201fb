"""Holds a plan on one device first; its windows must agree with those of the confirming phase.

The devices of a study run each trial together, and their metrics are judged together. The canary,
which holds alone, is compared with its own metrics in those windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner import guard
from tuner.core import (
    Estimate,
    Evidence,
    Limit,
    Observation,
    OverDevices,
    Past,
    Phase,
    Plan,
    Report,
    Row,
    Study,
    Trial,
    Verdict,
    Worth,
    baseline_context,
    counted,
    difference,
    improvement,
    is_like,
    pool_windows,
    quantity_of,
    setting_key,
    windows,
)
from tuner.study.confirm import confirmation_load, duel
from tuner.study.moves import Move, Step

MOST_ROUNDS = 3
"""A limit not proven after this multiple of the requested windows counts as not met: our choice."""
LEAST_SHARE = 0.5
"""A saving with its upper bound below this share of that while confirming contradicts it: our choice."""

Estimates = Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Whether the canary's windows confirm its plan or contradict it, and why."""

    confirmed: bool
    why: str


def first_phase(study: Study, plan: Plan) -> Phase:
    """Return the first phase of holding a plan; the baseline needs no canary."""
    alone = study.terms.canary and not all(study.rests(row.setting) for row in plan.rows)
    return Phase.CANARY if alone else Phase.HOLDING


def staged(study: Study, step: Step) -> Step:
    """Replace a step's hold on all devices with one on the canary."""
    if not isinstance(step, Move) or step.phase is not Phase.HOLDING or step.plan is None:
        return step
    return replace(step, phase=first_phase(study, step.plan))


def own_trials(
    study: Study, trials: Sequence[Trial], reports: Callable[[int], Sequence[Report]]
) -> list[Trial]:
    """Return the confirming trials that count, with the canary's own reports."""
    judged_trials = []
    for trial in windows(counted(study, trials), phase=Phase.CONFIRMING, least=Worth.ENDED):
        reported = [
            r for r in reports(trial.number) if r.device == study.terms.canary and not r.late
        ]
        if reported:
            own = reported[-1].outcome
            judged_trials.append(
                replace(trial, state=own.state, measurement=own.measurement, broke=own.broke)
            )
    return judged_trials


def judged(
    past: Past, own: Sequence[Trial], observed: Sequence[Observation]
) -> CanaryResult | None:
    """Judge a plan by the canary's held windows; return None while there are too few.

    `own` are the canary's results while confirming. A row is judged once it was held in the
    requested number of windows, under the load that it was confirmed at. It passes if its windows
    prove that every limit is kept and do not contradict its saving.
    """
    study, plan = past.study, past.study.plan
    if plan is None:
        return None
    results = []
    for row in plan.rows:
        held = _held(past, plan, row, observed)
        if len(held) >= study.terms.canary_windows and not study.rests(row.setting):
            results.append(_row_result(past, plan, row, own, held))
    lost = next((r for r in results if r is not None and not r.confirmed), None)
    if lost is not None or None in results:
        return lost
    return results[0] if results else None


def _held(past: Past, plan: Plan, row: Row, held: Sequence[Observation]) -> list[Observation]:
    """Return the windows of a row under a load at which it can be compared."""
    study, key = past.study, setting_key(row.setting)
    loads = confirmation_load(study, plan, row), baseline_context(study, past.trials)
    of_row = [w for w in held if setting_key(w.setting) == key]
    return [w for w in of_row if is_like(w.measurement.context, *loads)]


def _row_result(
    past: Past, plan: Plan, row: Row, own: Sequence[Trial], held: Sequence[Observation]
) -> CanaryResult | None:
    study, at = past.study, confirmation_load(past.study, plan, row)
    before, together = duel(study, own, row.setting, at), duel(study, past.trials, row.setting, at)
    where = f"in {len(held)} windows on {study.terms.canary}"
    if before is None or together is None:
        return CanaryResult(False, f"the confirmation of {study.terms.canary} is missing")
    evidence = past.behind(plan, row)
    limits = _shares(study, evidence, before[0], together[0])
    shown = pool_windows([w.measurement.estimates for w in held], study.quantities)
    if not guard.may_hold(shown, limits):
        broken = next(x for x in limits if x.verdict(shown.get(x.metric)) is not Verdict.FEASIBLE)
        may_be = guard.may_be_shown(shown, limits, study.quantities)
        if may_be and len(held) < MOST_ROUNDS * study.terms.canary_windows:
            return None
        return CanaryResult(False, f"{broken.in_short} is not proven to hold {where}")
    return _saved(study, evidence, before, shown, where)


def _shares(
    study: Study, evidence: Evidence, own: Estimates, together: Estimates
) -> tuple[Limit, ...]:
    """Return the limits for the canary alone: of a sum, its share at the baseline."""

    def share(limit: Limit) -> Limit:
        metric = limit.metric
        summed = quantity_of(metric, study.quantities).over_devices is OverDevices.SUM
        if not summed or metric not in own or metric not in together or not together[metric].mean:
            return limit
        return replace(limit, value=limit.value * own[metric].mean / together[metric].mean)

    return tuple(share(limit) for limit in evidence.limits or ())


def _saved(
    study: Study,
    evidence: Evidence,
    before: tuple[Estimates, Estimates],
    shown: Estimates,
    where: str,
) -> CanaryResult:
    """Judge the saving; if the baseline breaks a limit, no saving is required."""
    metric, score = study.objective.metric, study.objective.score
    baseline, confirmed, held = score(before[0]), score(before[1]), score(shown)
    if baseline is None or confirmed is None or held is None:
        return CanaryResult(False, f"{metric} was not measured {where}")
    sign, unit = study.objective.sign, quantity_of(metric, study.quantities).unit
    promised, gain = improvement(baseline, confirmed, sign), improvement(baseline, held, sign)
    how = "better" if gain.amount.mean >= 0.0 else "worse"
    text = f"{metric} {gain.text(unit)} {how} than the baseline {where}"
    surely = difference(baseline, held, sign).high
    contradicted = surely < LEAST_SHARE * max(difference(baseline, confirmed, sign).mean, 0.0)
    if contradicted and evidence.broken is None:
        return CanaryResult(False, f"{text}, but {promised.text(unit)} while confirming")
    return CanaryResult(True, f"confirmed: {text}")
