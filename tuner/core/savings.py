"""The gain of one setting over another, and its cost in the workload's capacity and latency."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.core.measurements import ABSURD, Estimate
from tuner.core.quantities import (
    CAPACITY,
    UNDECLARED,
    Kind,
    OverDevices,
    Quantities,
    called,
    quantity_of,
)

__all__ = [
    "Improvement",
    "capacity_beside",
    "capacity_lost",
    "difference",
    "improvement",
    "slower_by",
]

CAPACITY_LOSS = 0.05
"""A larger loss of capacity, or growth of a latency without a limit, is reported in the line of the saving:
our choice."""

Estimates = Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Improvement:
    """The improvement of one value over another: above 0 is better, below 0 worse.

    `amount` is a share of the baseline if `relative` is true, else a difference in the metric's unit.
    """

    amount: Estimate
    relative: bool

    @property
    def share(self) -> Estimate | None:
        """The improvement as a share of the baseline; None if it is a difference."""
        return self.amount if self.relative else None

    def text(self, unit: str = "") -> str:
        """Return the size with its standard error, without a sign: `12.3 ± 0.4 %`, `0.5 ± 0.1 J`."""
        mean, doubt = abs(self.amount.mean), self.amount.stderr
        if self.relative:
            return f"{100 * mean:.1f} ± {100 * doubt:.1f} %"
        spread = f" ± {doubt:.2g}" if doubt > 0.0 else ""
        return f"{mean:.4g}{spread}{'' if unit in ('', '1') else f' {unit}'}"


def difference(baseline: Estimate, other: Estimate, sign: float = 1.0) -> Estimate:
    """Return by how much `other` is better than `baseline`, in their unit; `sign` is the objective's."""
    doubt = math.hypot(other.stderr, baseline.stderr)
    return _better(sign * (baseline.mean - other.mean), doubt, baseline, other)


def improvement(baseline: Estimate, other: Estimate, sign: float = 1.0) -> Improvement:
    """Return by how much `other` is better than `baseline`; `sign` is the objective's.

    It is a share of the baseline if the baseline is above 0 and the other value is not below 0. Else it is
    the difference: a share of a baseline of -1, or of 0, has no meaning. It is the difference, too, if the
    share is absurdly large.
    """
    base = baseline.mean
    if base > 0.0 and other.mean >= 0.0:
        share = sign * (base - other.mean) / base
        doubt = math.hypot(other.stderr / base, other.mean / base * (baseline.stderr / base))
        if max(abs(share), doubt) < ABSURD:
            return Improvement(_better(share, doubt, baseline, other), True)
    return Improvement(difference(baseline, other, sign), False)


def _better(mean: float, doubt: float, baseline: Estimate, other: Estimate) -> Estimate:
    """Return an improvement and its standard error as an estimate, with the smaller `n` of both."""
    return Estimate.of_mean(
        mean, doubt, min(baseline.n, other.n), origin=other.origin, scope=other.scope
    )


def capacity_lost(
    baseline: Estimates,
    best: Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on a loss of capacity of over 5 %; empty if the loss is smaller or unknown.

    `requested` are the metrics of the objective and the constraints. If the capacity is not one of them,
    the clause names the constraint that would prevent the loss.
    """
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None or share >= -CAPACITY_LOSS:
        return ""
    text = f"{capacity} is {-100 * share:.1f} % lower"
    if capacity in requested:
        return f"{text}, as its constraint allows"
    constraint = f"{capacity} >= {1.0 - CAPACITY_LOSS:g}x baseline"
    return f'{text}: add the constraint "{constraint}" to keep it'


def slower_by(
    baseline: Estimates,
    best: Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on the latency that grew most, with its growth.

    Empty if the objective or a constraint is on a latency (`requested`), or if no latency grew by over 5 %.
    """

    def is_latency(metric: str) -> bool:
        quantity = quantity_of(metric, declared)
        return quantity.kind is Kind.TIME and quantity.over_devices is not OverDevices.SUM

    if any(is_latency(metric) for metric in requested):
        return ""
    grown = {m: _grown(baseline, best, m) or 0.0 for m in sorted(best) if is_latency(m)}
    metric = max(grown, key=lambda m: grown[m], default="")
    if not metric or grown[metric] <= CAPACITY_LOSS:
        return ""
    constraint = f"{metric} <= {1.0 + CAPACITY_LOSS:g}x baseline"
    return f'{metric} is {100 * grown[metric]:.1f} % higher: add the constraint "{constraint}" to keep it'


def capacity_beside(
    baseline: Estimates,
    best: Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on the change of the capacity, also if it is small, zero or unknown."""
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None:
        return f"{capacity} was not measured"
    if lost := capacity_lost(baseline, best, requested, declared):
        return lost
    grown = f"{100 * share:+.1f}"
    if float(grown) == 0.0:
        return f"{capacity} is unchanged"
    return f"{capacity} is {grown[1:]} % {'higher' if grown[0] == '+' else 'lower'}"


def _grown(baseline: Estimates, best: Estimates, capacity: str) -> float | None:
    """Return the growth of a metric as a share of the baseline; None if it is unknown."""
    if capacity not in baseline or capacity not in best:
        return None
    share = improvement(baseline[capacity], best[capacity], -1.0).share
    return None if share is None else share.mean
