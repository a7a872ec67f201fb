"""What one setting gains over another, and what that costs of the workload's capacity and latency."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tuner.core.measurements import Estimate
from tuner.core.quantities import (
    CAPACITY,
    UNDECLARED,
    Kind,
    OverDevices,
    Quantities,
    called,
    quantity_of,
)

CAPACITY_LOSS = 0.05
"""A larger loss of capacity, or growth of a latency that nothing limits, is said in the same line as what
it saves: our choice."""

Estimates = Mapping[str, Estimate]


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


def capacity_lost(
    baseline: Estimates,
    best: Estimates,
    asked: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause that says a loss of capacity of over 5 %, empty where there is none.

    `asked` are the metrics of the objective and the constraints: it names the constraint that would
    prevent the loss where none is on the capacity yet.
    """
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None or share >= -CAPACITY_LOSS:
        return ""
    text = f"{capacity} is {-100 * share:.1f} % lower"
    if capacity in asked:
        return f"{text}, as its constraint allows"
    kept = f"{capacity} >= {1.0 - CAPACITY_LOSS:g}x baseline"
    return f'{text}: add --constraint "{kept}" to keep it'


def slower_by(
    baseline: Estimates,
    best: Estimates,
    asked: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause that says by how much the latency that grew most did, where nothing limits any.

    Empty where one is asked for, and where none grew by over 5 %.
    """

    def is_latency(metric: str) -> bool:
        found = quantity_of(metric, declared)
        return found.kind is Kind.TIME and found.over_devices is not OverDevices.SUM

    if any(is_latency(metric) for metric in asked):
        return ""
    grown = {m: _grown(baseline, best, m) or 0.0 for m in sorted(best) if is_latency(m)}
    metric = max(grown, key=lambda m: grown[m], default="")
    if not metric or grown[metric] <= CAPACITY_LOSS:
        return ""
    kept = f"{metric} <= {1.0 + CAPACITY_LOSS:g}x baseline"
    return f'{metric} is {100 * grown[metric]:.1f} % higher: add --constraint "{kept}" to keep it'


def capacity_beside(
    baseline: Estimates,
    best: Estimates,
    asked: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause that says what became of the capacity, whatever it is."""
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None:
        return f"{capacity} was not measured"
    if lost := capacity_lost(baseline, best, asked, declared):
        return lost
    grown = f"{100 * share:+.1f}"
    if float(grown) == 0.0:
        return f"{capacity} is unchanged"
    return f"{capacity} is {grown[1:]} % {'higher' if grown[0] == '+' else 'lower'}"


def _grown(baseline: Estimates, best: Estimates, capacity: str) -> float | None:
    if capacity not in baseline or capacity not in best:
        return None
    return saving(baseline[capacity], best[capacity], -1.0).mean
