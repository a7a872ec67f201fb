"""Metrics of a load, with their standard errors and bounds."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from agents.load.generator import Tally
from tuner.core import Estimate, Scope, quantile_estimate

BATCHES = 20
"""The number of batches of a window for the standard errors of its means."""
LEAST_PER_BATCH = 2


def shown_by(tally: Tally, together: float = 1.0) -> dict[str, Estimate]:
    """Return the latencies and rates of a load; metrics with too few requests are absent.

    The service processes `together` items in one batch. They share its time, so they count as one
    observation of a tail. Means and rates have the standard error of batch means (Law, Simulation
    Modeling and Analysis, §9.5.3), because latencies of neighbours in a queue are correlated.
    """
    latencies_ms = [1000.0 * s for s in tally.latencies_s]
    if not latencies_ms:
        return {}
    shown = {
        "latency_p50_ms": quantile_estimate(latencies_ms, 0.50, together=together),
        "latency_p99_ms": quantile_estimate(latencies_ms, 0.99, together=together),
    }
    if len(latencies_ms) >= LEAST_PER_BATCH * BATCHES:
        size = len(latencies_ms) / BATCHES
        cuts = [round(k * size) for k in range(BATCHES + 1)]
        means = [statistics.fmean(latencies_ms[cuts[k] : cuts[k + 1]]) for k in range(BATCHES)]
        shown["latency_mean_ms"] = _of_batches(means, len(latencies_ms))
        for name, moments in (
            ("throughput_per_s", tally.completed_at_s),
            ("arrival_rate_per_s", tally.arrived_at_s),
        ):
            within = [(moment, 1) for moment in moments if moment < tally.seconds]
            if within:  # after a stall all answers may come after the end
                shown[name] = rate_of(within, tally.seconds)
    return shown


def rate_of(events: Sequence[tuple[float, int]], seconds: float) -> Estimate:
    """Return the rate of events per second; each has a time in s and a number.

    Events at or after `seconds` do not count.
    """
    width = seconds / BATCHES
    counts: Counter[int] = Counter()
    for moment, number in events:
        if moment < seconds:
            counts[int(moment / width)] += number
    rates = [counts[k] / width for k in range(BATCHES)]
    return _of_batches(rates, sum(counts.values()))


def _of_batches(values: Sequence[float], n: int) -> Estimate:
    """Return the mean of equal batches and its standard error, over `n` observations."""
    stderr = statistics.stdev(values) / math.sqrt(len(values))
    return Estimate.of_mean(statistics.fmean(values), stderr, n, scope=Scope.SERVICE)
