"""One window of a target: warm up, measure until precise enough, judge the window."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from agents.target.idle import idle_power
from agents.target.measured import MeasuredTarget
from agents.target.side import MeasuredSide, MeasuresRuns
from agents.target.window import TargetWindow, Usage
from agents.target.window_counts import WindowCounts
from tuner.core import (
    FOREIGN_SHARE,
    Clock,
    Context,
    Estimate,
    Limit,
    Measurement,
    MeasurementError,
    Now,
    Plan,
    Quantities,
    ReportedWindow,
    RuleFinding,
    Setting,
    demand,
    quantity_of,
    refuse_negative,
    unlike,
)
from tuner.guard import clearly_broken

READS = 10
"""Batches in a window of the requested length."""
JITTER = 0.05
"""Windows differ in length by up to this share, to avoid aliasing with periodic disturbances."""
TARGET_STDERR = 0.05
"""A window is extended while a required mean has a relative standard error above this."""
LEAST_ITEMS = 50
"""No window is cut short on fewer items than this: our choice, a few batches of any size."""
WARM_UP_SHARE = 0.1
LONGEST_WARM_UP_S = 5.0
SLICE_S = 0.5
"""The longest sleep between two checks of whether the trial may continue."""

CLOCK_STEP_S = 1e-6
"""No clock here sleeps for less than this."""

Check = Callable[[], None]
"""Returns while the measurement may continue; raises Conflict once it must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The request for a window: its metrics, the limits that cut it short, and its length.

    `expected` is the load that the window is compared with, empty for none. `context` is the load
    to request, empty for the traffic that arrives. `follows` is a signal whose mean is reported as the
    window's load, too. `plan` is a table for the workload to follow instead of the setting; the setting
    is then that of the plan's row at the load, else of its first row. `idle` requests the power between
    requests, measured before the window. `baseline` is in force while unusually many requests wait; empty:
    the setting always is. `samples` keeps the raw values, too.
    """

    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    window_s: float
    max_window_s: float
    expected: Context = field(default_factory=dict)
    context: Context = field(default_factory=dict)
    follows: str = ""
    plan: Plan | None = None
    idle: bool = False
    baseline: Setting = field(default_factory=dict)
    samples: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """The required metrics and those of the limits."""
        return tuple(dict.fromkeys([*self.metrics, *(limit.metric for limit in self.limits)]))


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """One window and the reasons against it; a text is empty without a reason.

    `changed`: another program changed a knob. `capped`: a power cap lowered one. `foreign`: other
    programs used the machine, or the rate differed. `broke`: the limit that cut the window short.
    """

    measurement: Measurement
    changed: str = ""
    foreign: str = ""
    broke: Limit | None = None
    capped: str = ""
    findings: tuple[RuleFinding, ...] = ()
    """The conclusions of the rules that compared its figures with second witnesses."""

    @property
    def spoilt(self) -> str:
        """Why the window does not count as evidence."""
        return self.changed or self.capped or self.foreign


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Measure one target, which it cannot set, on the target's own clock if it has one.

    `host_clock` and `now` are the host's; `usage` returns the host's cores and this process's CPU
    time. `counts` has the totals of its windows. A window in which others used more than
    `foreign_share` of the machine is contaminated.
    """

    target: MeasuredTarget[MeasuredSide]
    host_clock: Clock
    now: Now
    usage: Usage
    seed: str = ""
    counts: WindowCounts = field(default_factory=WindowCounts)
    foreign_share: float = FOREIGN_SHARE

    @property
    def clock(self) -> Clock:
        """The clock that windows are measured on."""
        return self.target.clock or self.host_clock

    def window(
        self, setting: Setting, ask: Ask, check: Check, rng: random.Random, began: float
    ) -> MeasuredWindow:
        """Warm up, and measure one window of the setting in force.

        Raises:
            Conflict: `check` requires an end.
            MeasurementError: a meter failed, or does not report a required metric.
            ActuationError: the setting in force is unknown.
        """
        try:
            window = self._window(setting, ask, check, rng, began)
        except MeasurementError:
            self.counts.fail()
            raise
        spoilt, cut = bool(window.spoilt), window.broke is not None
        self.counts.add(window.measurement, self.target.quantities, spoilt=spoilt, cut=cut)
        return window

    def _window(
        self, setting: Setting, ask: Ask, check: Check, rng: random.Random, began: float
    ) -> MeasuredWindow:
        """Measure one window at a setting that is already applied."""
        pause = partial(self.pause, check=check)
        idle = idle_power(self.target, setting, self.clock, self.usage, pause) if ask.idle else {}
        if self.runs is None:
            self._warm_up(ask, check)
        started_at, overhead_s = self.now(), self.clock.monotonic() - began
        window = TargetWindow(self.target, self.clock, self.usage, ask.context, ask.follows)
        try:
            if self.runs is None:
                broke = self._fill(window, ask, check, rng.uniform(1.0 - JITTER, 1.0 + JITTER))
            else:
                broke = self._fill_by_runs(window, self.runs, ask, check)
            changed, capped = self._changed(setting, ask.plan)
            window.stop()
        except BaseException:
            window.discard()
            raise
        ended = started_at.timestamp(), self.now().timestamp()
        estimates = window.estimates() | idle
        if broke is None and window.foreign() <= self.foreign_share:
            _demand(ask, estimates, window, self.target.quantities)
        refuse_negative(estimates, self.target.quantities)
        measurement = Measurement(
            estimates=estimates,
            started_at=started_at,
            seconds=window.seconds,
            overhead_s=overhead_s,
            load=window.load(),
            context=window.context(),
            throttled=window.throttled(),
            foreign=window.foreign(),
            sources={n: self.target.source(n) for n in estimates} | window.notes(),
            samples=window.samples(ended) if ask.samples else None,
        )
        judged = (*window.findings, *demand(ReportedWindow(measurement, self.target.quantities)))
        foreign = self._foreign(measurement, ask)
        return MeasuredWindow(measurement, changed, foreign, broke, capped, judged)

    def pause(self, seconds: float, check: Check) -> None:
        """Wait on the target's clock. Raises Conflict once the measurement must end."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) >= CLOCK_STEP_S:
            self.clock.sleep(min(left, SLICE_S))
            check()

    def _warm_up(self, ask: Ask, check: Check) -> None:
        """Measure briefly and discard the result: caches fill, and a load generator starts up."""
        warm_up_s = max(side.warm_up_s for side in self.target.sides.values())
        window = TargetWindow(self.target, self.clock, self.usage, ask.context)
        try:
            usual_s = min(WARM_UP_SHARE * ask.window_s, LONGEST_WARM_UP_S)
            self.pause(max(warm_up_s, usual_s), check)
        finally:
            window.discard()

    def _fill(self, window: TargetWindow, ask: Ask, check: Check, stretch: float) -> Limit | None:
        """Read until the window is long enough; return the limit that cut it short, if any."""
        length = min(ask.window_s * stretch, ask.max_window_s)

        def glancing() -> None:
            check()
            window.glance()

        while True:
            self.pause(length / READS, glancing)
            window.read()
            estimates = window.estimates()
            items = window.total("items")
            if items is None or items >= LEAST_ITEMS:
                limit = clearly_broken(estimates, ask.limits)
                if limit is not None:
                    return limit
            if window.seconds >= length / 2.0 and window.foreign() > self.foreign_share:
                return None  # already spoilt, so it is not measured to its end
            full = window.seconds >= length * (1.0 - 1e-6)
            longest = window.seconds >= ask.max_window_s * (1.0 - 1e-6)
            if longest or (full and not _too_little(ask, estimates, items, self.target.quantities)):
                return None

    @property
    def runs(self) -> int | None:
        """The number of a program's runs in a window; None if windows have a duration."""
        workload = self.target.workload
        meter = workload.meter if workload is not None else None
        return meter.runs if isinstance(meter, MeasuresRuns) else None

    def _fill_by_runs(
        self, window: TargetWindow, runs: int, ask: Ask, check: Check
    ) -> Limit | None:
        """Read after each run until there were enough; return the limit that cut it short, if any."""
        for _ in range(runs):
            while not window.wait(SLICE_S):
                check()
            window.read()
            limit = clearly_broken(window.estimates(), ask.limits)
            if limit is not None:
                return limit
        return None

    def _changed(self, setting: Setting, plan: Plan | None) -> tuple[str, str]:
        """Return no changes by other programs and by a power cap, because an observer sets nothing."""
        return "", ""

    def _foreign(self, measurement: Measurement, ask: Ask) -> str:
        """Return the reason that foreign use or an unexpected load gives against a window; else empty."""
        if measurement.foreign > self.foreign_share:
            return (
                f"other processes used {100 * measurement.foreign:.3g} % of the host's cores or of the "
                f"device (limit {100 * self.foreign_share:.0f} %); window discarded"
            )
        context, expected = measurement.context, ask.expected
        name = unlike(context, expected)
        if name is None:
            return ""
        return f"{name} was {context[name]:.4g}, expected {expected[name]:.4g}; window discarded"


def _too_little(
    ask: Ask, estimates: Mapping[str, Estimate], items: float | None, declared: Quantities
) -> bool:
    """Return whether a longer window would help: a metric is missing, a tail is open, a mean imprecise."""
    window = {name: estimates[name] for name in ask.needed if name in estimates}
    return (items is not None and len(window) < len(ask.needed)) or any(
        unbounded_tail(name, estimates, declared)
        or (
            not quantity_of(name, declared).tail
            and estimate.stderr > TARGET_STDERR * abs(estimate.mean)
        )
        for name, estimate in window.items()
    )


def unbounded_tail(name: str, estimates: Mapping[str, Estimate], declared: Quantities) -> bool:
    """Return whether a tail latency has no finite upper bound yet."""
    estimate = estimates.get(name)
    tail = quantity_of(name, declared).tail
    return estimate is not None and tail and estimate.high == float("inf")


def too_few(name: str, requests: int, seconds: float) -> str:
    """Return that a window had too few requests to bound a tail latency."""
    return f"{requests} requests in {seconds:.0f} s are too few to bound {name}"


def _demand(
    ask: Ask, estimates: Mapping[str, Estimate], window: TargetWindow, declared: Quantities
) -> None:
    """Check that every required metric was measured. Raises MeasurementError."""
    missing = [name for name in ask.needed if name not in estimates]
    if missing and window.total("items") == 0.0:
        failed = int(window.total("failed") or 0)
        raise MeasurementError(
            f"no item was completed in {window.seconds:.3g} s ({failed} failed), "
            f"so {', '.join(missing)} is unknown",
            hint="check that the workload works at this setting",
        )
    if missing:
        raise MeasurementError(
            f"the meters did not give {', '.join(missing)}",
            hint="run `jouletune doctor` for the metrics of this host",
        )
    energies = [n for n in ask.needed if quantity_of(n, declared).of_energy]
    if any(estimates[name].mean == 0.0 for name in energies):
        raise MeasurementError("the energy counter did not advance", hint="run `jouletune doctor`")
