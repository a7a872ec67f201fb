"""Merge the reports of several similar devices, under one workload and one setting, into one outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.core.measurements import Estimate, Measurement, weakest
from tuner.core.quantities import UNDECLARED, OverDevices, Quantities, quantity_of
from tuner.core.trials import Outcome, TrialState

__all__ = ["merged", "merged_estimate"]

GRAVEST_FIRST: tuple[TrialState, ...] = (
    TrialState.FAILED,
    TrialState.ABORTED,
    TrialState.CONTAMINATED,
    TrialState.INCONCLUSIVE,
    TrialState.COMPLETED,
)


def merged(outcomes: Sequence[Outcome], declared: Quantities = UNDECLARED) -> Outcome:
    """Return the outcome of a trial from the outcomes of its devices, of which there is at least one.

    The trial gets the gravest state. Quantities to which every device contributes, as energy to a shared
    item, are summed. Every other metric is the slowest device's: the highest latency, the lowest
    throughput.
    """
    if len(outcomes) == 1:
        return outcomes[0]
    gravest = min(outcomes, key=lambda o: GRAVEST_FIRST.index(o.state))
    broken = next((o.broke for o in outcomes if o.broke is not None), None)
    windows = [o.measurement for o in outcomes if o.measurement is not None]
    complete = len(windows) == len(outcomes)
    return replace(
        gravest,
        measurement=_merged_windows(windows, declared) if complete else gravest.measurement,
        broke=broken if gravest.state is TrialState.COMPLETED else None,
        reason="; ".join(dict.fromkeys(o.reason for o in outcomes if o.reason)),
    )


def _merged_windows(windows: Sequence[Measurement], declared: Quantities) -> Measurement:
    """Return the windows of all devices as one, with the metrics that every device has."""
    shared = [n for n in windows[0].estimates if all(n in w.estimates for w in windows)]
    slowest = max(windows, key=lambda w: w.seconds)
    return replace(
        slowest,
        estimates={
            n: merged_estimate(
                [w.estimates[n] for w in windows], quantity_of(n, declared).over_devices
            )
            for n in shared
        },
        throttled=tuple(dict.fromkeys(reason for w in windows for reason in w.throttled)),
        foreign=max(w.foreign for w in windows),
        sources=_sources(windows),
    )


def merged_estimate(estimates: Sequence[Estimate], over: OverDevices) -> Estimate:
    """Return the estimate for several devices together: their sum, or the slowest device's."""
    if over is not OverDevices.SUM:
        worse = min if over is OverDevices.LEAST else max
        slowest = worse(estimates, key=lambda e: e.mean)
        return replace(
            slowest,
            low=worse(e.low for e in estimates),
            high=worse(e.high for e in estimates),
            origin=weakest(e.origin for e in estimates),
        )
    return Estimate.of_mean(
        math.fsum(e.mean for e in estimates),
        math.hypot(*(e.stderr for e in estimates)),
        min(e.n for e in estimates),
        origin=weakest(e.origin for e in estimates),
        scope=estimates[0].scope,
    )


def _sources(windows: Sequence[Measurement]) -> Mapping[str, str]:
    """Return the sources of all windows by name; the last window's counts."""
    return {name: source for window in windows for name, source in window.sources.items()}
