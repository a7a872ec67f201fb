"""A device's front of power against throughput or latency, from the trials of its studies."""

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
"""Throughput that varies by less than this factor is the load's, not the device's: our choice."""
LEAST_POINTS = 3


@dataclass(frozen=True, slots=True)
class PowerFront:
    """Watts and throughput of settings that none other beats, rising; empty where too few were measured.

    `needs_w` is the least power at which all limits of the study were kept; None without a limit, `inf`
    where no measured setting kept them. `metric` is the source of the throughput.
    """

    points: tuple[tuple[float, float], ...] = ()
    needs_w: float | None = None
    metric: str = ""


def front_of(past: Past) -> PowerFront:
    """Return the front that a study's trials show.

    Throughput is `throughput_per_s` where it varies with the setting. Under a load that does not reach the
    device's capacity it is one over the first latency that the study limits or measured.
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
    """Return the metric of throughput; empty where none was measured."""
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
