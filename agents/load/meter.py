"""The meter of a service to which our load generator sends requests."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakSet

from agents.load.generator import LoadCaller, LoadRun, LoadShape, Tally, by_reason
from agents.load.window import OpenWindow
from tuner.core import (
    FAILURES,
    Clock,
    Context,
    Estimate,
    Latencies,
    OwnRequests,
    Reading,
    Scope,
    Window,
    quantile_estimate,
)

Totals = Callable[[], Mapping[str, float]]
"""Returns a service's totals, by metric, since a window was opened; raises MeasurementError."""

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


@dataclass(frozen=True, eq=False)
class LoadMeter:
    """Measures a service under our load; every window sends the same seeded arrivals.

    `connect` makes a separate connection for each caller. `counting` starts to count the totals that the
    service reports during one window: `cpu_s`, and `items` and `batches` if available. `counted` is the
    name of the service's counter of items; empty if it has none.
    """

    _connect: Callable[..., LoadCaller]
    _shape: LoadShape
    _counting: Callable[[], Totals]
    _clock: Clock
    _seed: int
    _counted: str = ""
    _runs: WeakSet[LoadRun] = field(default_factory=WeakSet, kw_only=True)

    @property
    def context(self) -> Context:
        """The part of the load that does not depend on the setting."""
        return self._shape.context

    def offering(self, context: Context) -> LoadMeter:
        """Return this meter with another load. Raises InvalidInput: the context requests no load."""
        return replace(self, _shape=LoadShape.from_context(context))

    def start(self) -> Window:
        """Start the load. Raises MeasurementError: the service does not report its totals."""
        totals = self._counting()
        run = LoadRun(self._connect, self._shape, clock=self._clock, seed=self._seed)
        self._runs.add(run)
        return LoadWindow(run, totals, self._counted, self._shape.callers)

    def close(self) -> None:
        """Stop the load of all open windows."""
        for run in list(self._runs):
            run.stop(grace_s=0.0)


class LoadWindow(OpenWindow):
    """An open window, whose load runs until the window is stopped.

    Latencies and failures are measured by our callers. Items are counted by the service if it reports
    them, so that values per item are right even if another program sends requests, too.
    """

    def __init__(self, run: LoadRun, totals: Totals, counted: str = "", callers: int = 0) -> None:
        self._run = run
        self._counted, self._callers = counted, callers
        self._totals = totals

    def _shown(self) -> Reading:
        """Return the window's metrics so far. Raises MeasurementError."""
        return self._reading(self._run.read())

    def _ended(self) -> Reading:
        """Stop the load and return the window's metrics. Raises MeasurementError."""
        return self._reading(self._run.stop(), last=True)

    def _reading(self, tally: Tally, *, last: bool = False) -> Reading:
        """Return a reading from the callers' tally and the service's totals; the last has latencies."""
        counts = {"items": float(len(tally.latencies_s)), "failed": float(tally.failed)}
        totals = {**counts, **self._totals()}
        batches = totals.pop("batches", 0.0)
        together = max(1.0, totals["items"] / batches) if batches > 0.0 else 1.0
        own = OwnRequests(
            counter=self._counted,
            counted=totals["items"],
            completed=counts["items"],
            in_flight=self._callers,
            seconds=tally.seconds,
            counts="request" in self._counted,
        )
        facts, latencies = (own,) if self._counted else (), None
        if last:
            latencies = Latencies.of([1000.0 * s for s in tally.latencies_s], together)
        notes = {FAILURES: by_reason(tally.failures)} if tally.failures else {}
        return Reading(totals, shown_by(tally, together), notes, facts, latencies)
