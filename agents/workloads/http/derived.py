"""Further metrics of a window: ratios, quantiles, the load, and the knobs' measured effects.

A knob with a measurable effect is checked: if the counters contradict its value, the window does not count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from agents.load.generator import REQUESTS, sent
from agents.load.meter import LoadMeter
from agents.load.streaming import SHARES
from agents.load.window import OpenWindow
from agents.workloads.http.exposition import Snapshot
from agents.workloads.http.knob_config import KnobEffect
from agents.workloads.http.metric_config import POSITION, ExportedMetrics
from tuner.core import (
    Better,
    Context,
    CounterStep,
    Estimate,
    Kind,
    MeasurementError,
    Meter,
    Metric,
    OverWindows,
    Quantity,
    Reading,
    Scope,
    Setting,
    TuningError,
    Value,
    Window,
    demand,
    ratio_estimate,
    reraised,
)

SHARE = Quantity("1")
TAIL_MS = Quantity("ms", Better.LESS, Kind.TIME, over_windows=OverWindows.TAIL)
SHORT, OVER = 0.10, 0.01
"""Relative tolerances of an effect below its value, as the end of an answer drafts less, and above it.
Our choice.
"""
Effects = Mapping[str, KnobEffect]


@dataclass(frozen=True, eq=False)
class DerivedMeter:
    """Add further metrics from the service's text to those of a meter.

    `in_force` reads the setting under a load, None if a plan changes it within the window.
    """

    _meter: Meter
    _exported: ExportedMetrics
    _effects: Effects
    _snapshot: Callable[[], Snapshot]
    _in_force: Callable[[Context], Setting | None]

    def start(self) -> Window:
        """Open a window. Raises MeasurementError."""
        with reraised(MeasurementError, TuningError):
            setting = self._in_force(self._sent) if self._effects else None
        expected = {} if setting is None else {name: setting[name] for name in self._effects}
        first = self._snapshot()
        return DerivedWindow(
            self._meter.start(), self._exported, self._effects, expected, self._snapshot, first
        )

    @property
    def _sent(self) -> Context:
        """The load that the agent sends; empty for the traffic that arrives."""
        return {}


@dataclass(frozen=True, eq=False)
class DerivedLoadMeter(DerivedMeter):
    """A derived meter under our own load, which may be requested by the name of the file's signal."""

    _meter: LoadMeter

    def close(self) -> None:
        """Stop the load of all open windows."""
        self._meter.close()

    @property
    def context(self) -> Context:
        """The load that is sent."""
        names = {REQUESTS.name: self._exported.signal or REQUESTS.name}
        return {names.get(name, name): value for name, value in self._meter.context.items()}

    @property
    def _sent(self) -> Context:
        """Return the load that the agent sends."""
        return self.context

    def offering(self, context: Context) -> DerivedLoadMeter:
        """Return the meter at another load. Raises InvalidInput if none is requested."""
        return replace(self, _meter=self._meter.offering(sent(context, self._exported.signal)))


class DerivedWindow(OpenWindow):
    """An open window, and the service's totals since it was opened."""

    def __init__(
        self,
        window: Window,
        exported: ExportedMetrics,
        effects: Effects,
        expected: Setting,
        snapshot: Callable[[], Snapshot],
        first: Snapshot,
    ) -> None:
        self._window, self._exported, self._effects = window, exported, effects
        self._expected, self._snapshot = expected, snapshot
        self._looks = [first]

    def _shown(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""
        return self._with(self._window.read())

    def _ended(self) -> Reading:
        """Close the inner window and return its metrics. Raises MeasurementError."""
        reading = self._with(self._window.stop())
        self._demand_effects(reading.totals)
        return reading

    def _with(self, reading: Reading) -> Reading:
        """Add the further metrics to a reading. Raises MeasurementError."""
        self._looks.append(self._snapshot())
        for name, value in self._expected.items():
            _check_effect(name, value, self._effects[name], *self._growth(name))
        estimates = dict(reading.estimates)
        if self._exported.items.name:  # it counted requests
            estimates.pop("throughput_per_s", None)
        estimates |= self._quantiles() | self._ratios() | self._load()
        return replace(reading, estimates=estimates)

    def _demand_effects(self, totals: Mapping[str, float]) -> None:
        """Raise MeasurementError if work was done without the expected effect of a knob."""
        for name, value in self._expected.items():
            effect = self._effects[name]
            silent = self._growth(name)[1] == 0.0 and not effect.at_most
            if value and silent and totals.get("items", 0.0) > 0.0:
                raise MeasurementError(
                    f"{name} is set to {value}, but {effect.per} did not grow",
                    hint="the service does not use the value; check its log",
                )

    def _quantiles(self) -> dict[str, Estimate]:
        """Return the quantiles of the further histograms in the window."""
        shown = {}
        for name, now in self._looks[-1].histograms.items():
            grown = now.since(self._looks[0].histograms[name])
            if grown.n:
                for share in SHARES:
                    shown[f"{name}_p{share}_ms"] = grown.quantile(share / 100.0)
        return shown

    def _ratios(self) -> dict[str, Estimate]:
        """Return the ratios; the standard error is that between readings, at least that of the counts."""
        shown = {}
        for name in sorted(self._looks[-1].ratios.keys() - self._effects.keys()):
            above, below = self._growth(name)
            if below < 1.0:
                continue
            mean, counted = max(0.0, above) / below, math.sqrt(max(1.0, above)) / below
            steps = [_step(a, b, name) for a, b in pairwise(self._looks)]
            scatter = ratio_estimate([s for s in steps if s[1] > 0.0], 1.0, share_metric(name))
            doubt = counted if scatter is None else max(counted, scatter.stderr)
            shown[name] = Estimate.of_mean(mean, doubt, round(below), scope=Scope.SERVICE)
        return shown

    def _load(self) -> dict[str, Estimate]:
        """Return the mean load over the readings with any load, which is that of the busy time."""
        loads = [look.load for look in self._looks[1:] if look.load]
        if len(loads) < 2:
            return {}
        spread = statistics.stdev(loads) / math.sqrt(len(loads))
        mean = statistics.fmean(loads)
        return {
            self._exported.signal: Estimate.of_mean(mean, spread, len(loads), scope=Scope.SERVICE)
        }

    def _growth(self, name: str) -> tuple[float, float]:
        """Return the growth of a ratio's two parts. Raises MeasurementError."""
        above, below = _step(self._looks[0], self._looks[-1], name)
        demand(CounterStep(f"the counter of {name}", 0.0, below))
        return above, below


def derived_metrics(exported: ExportedMetrics, positions: int) -> tuple[Metric, ...]:
    """Return the metrics of a window, with one for each position of a ratio by a label."""
    names = [
        ratio.name.replace(POSITION, str(i))
        for ratio in exported.ratios
        for i in range(1, (positions if ratio.by else 1) + 1)
    ]
    tails = [f"{name}_p{share}_ms" for name in exported.histograms for share in SHARES]
    return (
        *(share_metric(name) for name in [*names, *([exported.signal] if exported.signal else [])]),
        *(Metric(name, scope=Scope.SERVICE, quantity=TAIL_MS) for name in tails),
    )


def share_metric(name: str) -> Metric:
    """Return the metric of a ratio or a load."""
    return Metric(name, scope=Scope.SERVICE, quantity=SHARE)


def _step(before: Snapshot, now: Snapshot, name: str) -> tuple[float, float]:
    """Return the growth of a ratio's numerator and denominator between two snapshots."""
    above, below = now.ratios.get(name, (0.0, 0.0))
    above_before, below_before = before.ratios.get(name, (0.0, 0.0))
    return above - above_before, below - below_before


def _check_effect(name: str, value: Value, effect: KnobEffect, above: float, below: float) -> None:
    """Raise MeasurementError if the counters contradict a knob's value."""
    expected = float(value)
    ratio = above / below if below > 0.0 else 0.0
    missed = ratio > expected * (1.0 + OVER)
    missed |= below > 0.0 and not effect.at_most and ratio < expected * (1.0 - SHORT)
    if missed:
        raise MeasurementError(
            f"{name} is set to {value}, but {effect.counter} per {effect.per} is {ratio:.3g}",
            hint="the service does not use the value; check its log",
        )
