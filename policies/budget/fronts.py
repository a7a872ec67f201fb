"""The front of a device's power against throughput or latency, from the trials of its studies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.core import (
    CAPACITY,
    POWER,
    Estimate,
    Kind,
    Past,
    Verdict,
    called,
    quantity_of,
)

VARIES = 1.05
"""A throughput that varies by less than this factor is set by the load, not by the device: our choice."""
LEAST_POINTS = 3


@dataclass(frozen=True, slots=True)
class PowerFront:
    """The watts and throughput of the Pareto-optimal settings, rising; empty if too few were measured.

    `needs_w` is the least power in watts at which all limits of the study were kept: None without a limit,
    `inf` if no measured setting kept them. `metric` is the metric from which the throughput is computed.
    """

    points: tuple[tuple[float, float], ...] = ()
    needs_w: float | None = None
    metric: str = ""


def front_of(past: Past) -> PowerFront:
    """Return the front of a study's trials.

    The throughput is `throughput_per_s` if that varies with the setting. Under a load below the device's
    capacity it is the inverse of the first latency that the study limits or, without a limit, measured.
    """
    study, evidence = past.study, past.evidence
    power = called(POWER, study.quantities)
    shown = [c for c in evidence.candidates if c.deployable and power in c.estimates]
    limits = evidence.limits
    needs = None
    if study.constraints:
        kept = [c.estimates[power].mean for c in shown if c.verdict is Verdict.FEASIBLE]
        needs = min(kept, default=math.inf) if limits is not None else None
    metric = _metric(past, [c.estimates for c in shown])
    if not metric:
        return PowerFront(needs_w=needs)
    inverse = quantity_of(metric, study.quantities).kind is Kind.TIME
    pairs = sorted(
        (c.estimates[power].mean, 1.0 / mean if inverse else mean)
        for c in shown
        if metric in c.estimates and (mean := c.estimates[metric].mean) > 0.0
    )
    points: list[tuple[float, float]] = []
    for watts, rate in pairs:
        if watts > 0.0 and (not points or rate > points[-1][1]):
            points.append((watts, rate))
    if len(points) < LEAST_POINTS:
        return PowerFront(needs_w=needs)
    return PowerFront(tuple(points), needs, metric)


def _metric(past: Past, shown: Sequence[Mapping[str, Estimate]]) -> str:
    """Return the metric from which the throughput is computed; empty if none was measured."""
    declared = past.study.quantities
    capacity = called(CAPACITY, declared)
    rates = [e[capacity].mean for e in shown if capacity in e and e[capacity].mean > 0.0]
    if rates and max(rates) >= VARIES * min(rates):
        return capacity
    limited = [c.metric for c in past.study.constraints]
    measured = sorted({name for one in shown for name in one})
    for name in [*limited, *measured]:
        if quantity_of(name, declared).kind is Kind.TIME and name in measured:
            return name
    return ""
