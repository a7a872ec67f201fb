"""The meter of a service to which our load generator sends requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakSet

from agents.load.generator import LoadCaller, LoadRun, LoadShape, Tally
from agents.load.stats import shown_by
from tuner.core import Clock, Context, Latencies, OwnRequests, Reading, Window

Totals = Callable[[], Mapping[str, float]]
"""Returns a service's totals, by metric, since a window was opened; raises MeasurementError."""


class LoadMeter:
    """Measures a service under our load; every window sends the same seeded arrivals.

    `connect` makes a separate connection for each caller. `counting` starts to count the totals that the
    service reports during one window: `cpu_s`, and `items` and `batches` if available. `counted` is the
    name of the service's counter of items; empty if it has none.
    """

    def __init__(
        self,
        connect: Callable[[], LoadCaller],
        shape: LoadShape,
        counting: Callable[[], Totals],
        clock: Clock,
        seed: int,
        counted: str = "",
    ) -> None:
        self._connect = connect
        self._shape = shape
        self._counting = counting
        self._clock = clock
        self._seed = seed
        self._counted = counted
        self._runs: WeakSet[LoadRun] = WeakSet()

    @property
    def context(self) -> Context:
        """The part of the load that does not depend on the setting."""
        return self._shape.context

    def offering(self, context: Context) -> LoadMeter:
        """Return this meter with another load. Raises InvalidInput: the context requests no load."""
        shape = LoadShape.from_context(context)
        other = LoadMeter(
            self._connect, shape, self._counting, self._clock, self._seed, self._counted
        )
        other._runs = self._runs
        return other

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


class LoadWindow:
    """An open window, whose load runs until the window is stopped.

    Latencies and failures are measured by our callers. Items are counted by the service if it reports
    them, so that values per item are right even if another program sends requests, too.
    """

    def __init__(self, run: LoadRun, totals: Totals, counted: str = "", callers: int = 0) -> None:
        self._run = run
        self._counted, self._callers = counted, callers
        self._totals = totals
        self._final: Reading | None = None

    def read(self) -> Reading:
        """Return the window's metrics so far. Raises MeasurementError."""
        return self._reading(self._run.read()) if self._final is None else self._final

    def stop(self) -> Reading:
        """Stop the load and return the window's metrics. Raises MeasurementError."""
        if self._final is None:
            self._final = self._reading(self._run.stop(), last=True)
        return self._final

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
        return Reading(totals, shown_by(tally, together), facts=facts, latencies=latencies)
