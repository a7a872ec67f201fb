"""One measuring window over all sides of a target: turns totals into metrics with standard errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.target.measured import MeasuredTarget, lists
from agents.target.side import MeasuredSide, OffersLoad, WaitsForRuns
from agents.target.signal_mean import SignalMean
from tuner.core import (
    ABSENT,
    ANYWHERE,
    FOREIGN_LOAD,
    ONE_WITNESS,
    STANDARD,
    Clock,
    Context,
    CounterStep,
    DeviceUse,
    Estimate,
    Fact,
    InvalidInput,
    Latencies,
    Load,
    MeasurementError,
    Meter,
    Metric,
    OverDevices,
    Quantity,
    Reading,
    RuleFinding,
    TuningError,
    Window,
    WindowSamples,
    WorkloadPlace,
    demand,
    in_words,
    merged_estimate,
    quantity_of,
    ratio_estimate,
    standard,
)

SECONDS = "seconds"
OWN = "own_cpu_s"
"""The CPU time of this program, which measures: its own part of the power."""
MOST_SUSPENDED_S = 0.1
"""A shorter suspension in s is not counted, as two clocks that are read in turn differ by less than
this."""
ENERGY, FOREIGN, THROTTLED = "energy_j", "foreign_s", "throttled_"
SIZES = 0.5
"""Standard deviation of one request's energy due to its size, as a share of the mean. In a window of
few requests the scatter of the batches underestimates it. Our choice: half of the energy varies by its
own size.
"""
NO_CPU_TIME = "unknown: the workload does not report its CPU time"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The definition of a metric by two totals: `scale` × the first divided by the second."""

    total: str
    per: str
    scale: float = 1.0


RATIOS: Mapping[Quantity, Ratio] = {
    STANDARD["energy_j"]: Ratio("energy_j", "items"),
    STANDARD["power_w"]: Ratio("energy_j", SECONDS),
    STANDARD["cpu_time_ms"]: Ratio("cpu_s", "items", 1000.0),
    STANDARD["throughput_per_s"]: Ratio("items", SECONDS),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """The host around a measurement: its cores, and the CPU seconds of this process so far.

    `suspended_s` is the time in s for which the host has been suspended since its boot.
    """

    cores: int
    own_cpu_s: Callable[[], float]
    suspended_s: Callable[[], float] = lambda: 0.0


class TargetWindow:
    """An open window over all sides; every `read` ends a batch.

    Totals are differenced between readings and turned into ratios. Their standard errors come from
    the scatter between batches, and so cover all variation within the window. A total with the name
    of a declared metric that adds up over devices becomes that metric, per item. The devices'
    energy adds up, and so do such totals; of disturbances the largest counts; of other totals that
    several sides report, the workload's counts. `context` is the load to request, empty for the traffic
    that arrives. `follows` is a signal whose mean is reported as the window's load, unless the window
    has another.

    Raises:
        MeasurementError: a meter does not answer.
    """

    def __init__(
        self,
        target: MeasuredTarget[MeasuredSide],
        clock: Clock,
        usage: Usage,
        context: Context = ANYWHERE,
        follows: str = "",
    ) -> None:
        self._clock = clock
        self._usage = usage
        self._metrics = {m.name: m for m in target.metrics}
        self._devices, self._declared = len(target.devices), target.quantities
        self._own = {
            name: sum(lists(device, name) for device in target.devices)
            for name, metric in self._metrics.items()
            if standard(name) is None and metric.quantity.over_devices is OverDevices.SUM
        }
        self._workload = target.workload is not None
        self._disturbed: list[dict[str, float]] = [{} for _ in target.devices]
        counted = [lists(d, ENERGY) and not target.covers(d) for d in target.devices]
        self._metered = [n for n, counts in enumerate(counted) if counts]
        self._windows: list[Window] = []
        meters = [side.meter for side in target.sides.values()]
        if context:
            meters = offering(meters, context)
        self._sent: dict[str, float] = dict(context)
        for meter in meters:
            self._sent |= meter.context if isinstance(meter, OffersLoad) else {}
        try:
            for meter in meters:
                self._windows.append(meter.start())
            live = target.signals.get(follows)
            self._signal = None if live is None else SignalMean(live, clock)
        except TuningError:
            self.discard()
            raise
        self._began = clock.monotonic()
        self._own_began = usage.own_cpu_s()
        self._suspended_s = usage.suspended_s()
        self._own_s = 0.0
        self._marks: list[Mapping[str, float]] = [{SECONDS: 0.0}]
        self._finished: dict[str, Estimate] = {}
        self._latencies: Latencies | None = None
        self._notes: list[Mapping[str, str]] = []
        self._facts: list[Fact] = []
        self.findings: list[RuleFinding] = []

    @property
    def seconds(self) -> float:
        """The length of the window in s up to the last reading, on the device's clock."""
        return self._marks[-1][SECONDS]

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for a batch that ends by itself; return whether it ended."""
        return all(w.wait(seconds) for w in self._windows if isinstance(w, WaitsForRuns))

    @property
    def offered(self) -> bool:
        """Whether load arrives at its own rate."""
        return "arrival_rate_per_s" in self._metrics

    def total(self, name: str) -> float | None:
        """Return a total at the last reading that reported it; None if no reading did."""
        return next((m[name] for m in reversed(self._marks) if name in m), None)

    def read(self) -> None:
        """Read all meters, and end a batch.

        Raises:
            MeasurementError: a total went backwards or is not a number, or the host was suspended.
        """
        away_s = self._usage.suspended_s() - self._suspended_s
        if away_s > MOST_SUSPENDED_S:
            raise MeasurementError(
                f"the host was suspended for {away_s:.3g} s within the window",
                hint="nothing was measured in that time; measure again",
            )
        if self._signal is not None:
            self._signal.look()
        totals = self._take([w.read for w in self._windows])
        for name, value in totals.items():
            try:
                step = demand(CounterStep(f"the total {name}", self.total(name) or 0.0, value))
            except MeasurementError:
                self.stop()  # raises the cause if another witness has it, as several workers
                raise
            self.findings += [one for one in step if one not in self.findings]
        self._own_s = self._usage.own_cpu_s() - self._own_began
        moment = {SECONDS: self._clock.monotonic() - self._began, OWN: self._own_s}
        self._marks.append({**moment, **totals})

    def glance(self) -> None:
        """Read the followed signal alone, between two readings."""
        if self._signal is not None:
            self._signal.glance()

    def stop(self) -> None:
        """Close the window, and compare its figures; the totals of the last reading are final.

        Raises:
            MeasurementError: a meter failed, or a second witness contradicts the figures.
        """
        self._take([w.stop for w in self._windows])
        uses = tuple(fact for fact in self._facts if isinstance(fact, DeviceUse))
        if uses and self._workload:
            whole = len(uses) == self._devices
            self._facts.append(WorkloadPlace(uses, self.total("items") or 0.0, whole))
        self.findings += demand(*self._facts)
        if one_witness := in_words(self.findings):
            self._notes.append({ONE_WITNESS: one_witness})

    def discard(self) -> None:
        """Close the window, ignoring errors, and discard its result."""
        for window in self._windows:
            try:
                window.stop()
            except TuningError:
                continue

    def estimates(self) -> dict[str, Estimate]:
        """Return every metric available so far.

        A meter's finished metrics are used unchanged: they include errors that batches cannot show.
        """
        derived = {
            name: estimate
            for name, metric in self._metrics.items()
            if (ratio := self._ratio_of(metric)) is not None
            and (estimate := self._ratio(ratio, metric)) is not None
        }
        return derived | self._finished

    def samples(self, wall_s: tuple[float, float]) -> WindowSamples:
        """Return the raw values of the window, which began and ended at `wall_s` seconds since 1970.

        A metric whose error was widened for a followed load counts as finished by its meter.
        """
        marks = self._marks[1:]
        names = dict.fromkeys(n for mark in marks for n in mark if n != SECONDS)
        own = {n: r for n, m in self._metrics.items() if (r := self._ratio_of(m)) is not None}
        clear = {n: r for n, r in own.items() if self._signal is None or r.per != "items"}
        derived = self.estimates()
        return WindowSamples(
            clock_s=(self._began, self._began + self.seconds),
            wall_s=wall_s,
            seconds=tuple(mark[SECONDS] for mark in marks),
            totals={name: tuple(m.get(name, ABSENT) for m in marks) for name in names},
            ratios={
                n: (r.total, r.per, r.scale)
                for n, r in clear.items()
                if n in derived and n not in self._finished
            },
            latencies=self._latencies,
            runs=any(isinstance(w, WaitsForRuns) for w in self._windows),
        ).bounded()

    def context(self) -> Context:
        """Return the part of the load that no setting changes: its rate, if available."""
        has_rate = self.offered or "arrival_rate_per_s" in self._sent
        rate = self._finished.get("arrival_rate_per_s") if has_rate else None
        observed = {} if self._signal is None else self._signal.context
        return {
            **observed,
            **self._sent,
            **({} if rate is None else {"arrival_rate_per_s": rate.mean}),
        }

    def load(self) -> Load:
        """Return the load so far."""
        busy = self.total("busy_s")
        return Load(
            int(self.total("items") or 0),
            int(self.total("failed") or 0),
            None if busy is None else min(1.0, busy / self._capacity_s),
        )

    def throttled(self) -> tuple[str, ...]:
        """Return the reasons for which the device was throttled within the window."""
        prefix = THROTTLED
        names = {name for mark in self._marks for name in mark if name.startswith(prefix)}
        return tuple(
            sorted(n.removeprefix(prefix).removesuffix("_s") for n in names if self.total(n))
        )

    def notes(self) -> dict[str, str]:
        """Return the remarks on the window as text, by subject."""
        by_subject: dict[str, list[str]] = {}
        for subject, text in (pair for notes in self._notes for pair in notes.items()):
            by_subject.setdefault(subject, []).append(text)
        if self.total("busy_s") is not None and not self._has_cpu_time:
            by_subject.setdefault(FOREIGN_LOAD, []).append(NO_CPU_TIME)
        return {subject: "; ".join(dict.fromkeys(texts)) for subject, texts in by_subject.items()}

    def foreign(self) -> float:
        """Return the share of the machine used by other programs than the workload, its load and this one.

        Of the host's cores, or of the device's time, whichever is larger; 0 if neither is
        available, which the notes report. A workload that does not report its CPU time cannot be
        distinguished from others.
        """
        on_device = (self.total(FOREIGN) or 0.0) / max(self.seconds, 1e-9)
        busy, used = self.total("busy_s"), self.total("cpu_s")
        ours = self._own_s + (used or 0.0) + (self.total("load_cpu_s") or 0.0)
        on_host = max(0.0, (busy or 0.0) - ours) / self._capacity_s if self._has_cpu_time else 0.0
        return min(1.0, max(on_device, on_host))

    @property
    def _has_cpu_time(self) -> bool:
        return self.total("cpu_s") is not None or not self._workload

    @property
    def _capacity_s(self) -> float:
        """The CPU seconds of all cores in the window."""
        return max(self._usage.cores * self.seconds, 1e-9)

    def _take(self, ask: Sequence[Callable[[], Reading]]) -> dict[str, float]:
        """Read all sides, and return the totals."""
        readings = [one() for one in ask]
        self._notes = [reading.notes for reading in readings]
        self._latencies = next((r.latencies for r in reversed(readings) if r.latencies), None)
        self._facts = [fact for reading in readings for fact in reading.facts]
        totals: dict[str, float] = {}
        shown: dict[str, list[Estimate]] = {}
        for number, reading in enumerate(readings):
            totals |= reading.totals
            for name, estimate in reading.estimates.items():
                alike = shown.setdefault(name, []) if number < self._devices else []
                shown[name] = [*alike, estimate]
        self._finished |= {
            name: merged_estimate(estimates, quantity_of(name, self._declared).over_devices)
            for name, estimates in shown.items()
        }
        devices = [reading.totals for reading in readings[: self._devices]]
        for name in self._own.keys() - {n for r in readings[self._devices :] for n in r.totals}:
            values = [device[name] for device in devices if name in device]
            totals.pop(name, None)
            if values and len(values) == self._own[name]:  # else the sum is unknown
                totals[name] = math.fsum(values)
        for side, disturbance in zip(devices, self._disturbed, strict=True):
            disturbance |= {
                n: v for n, v in side.items() if n == FOREIGN or n.startswith(THROTTLED)
            }
        names = {name for disturbance in self._disturbed for name in disturbance}
        totals |= {
            n: max(disturbance.get(n, 0.0) for disturbance in self._disturbed) for n in names
        }
        if any(ENERGY in reading.totals for reading in readings[self._devices :]):
            return totals
        return self._with_energy(totals, devices)

    def _with_energy(
        self, totals: dict[str, float], devices: Sequence[Mapping[str, float]]
    ) -> dict[str, float]:
        """Add the sum of the devices' energy to the totals, if several have a meter.

        The sum is unknown if one of them did not report this time, or did not change while another
        did.
        """
        if len(devices) > 1 and self._metered:
            totals.pop(ENERGY, None)
            energies = [devices[n][ENERGY] for n in self._metered if ENERGY in devices[n]]
            if len(energies) == len(self._metered) and (all(energies) or not any(energies)):
                totals[ENERGY] = math.fsum(energies)
        return totals

    def _ratio_of(self, metric: Metric) -> Ratio | None:
        """Return the totals that define a metric; None for a finished metric."""
        own = Ratio(metric.name, "items") if metric.name in self._own else None
        return RATIOS.get(metric.quantity, own)

    def _ratio(self, ratio: Ratio, metric: Metric) -> Estimate | None:
        """Return a ratio's mean and error from the batches; None without enough of them."""
        marks: list[Mapping[str, float]] = [{ratio.total: 0.0, ratio.per: 0.0, SECONDS: 0.0}]
        marks += [m for m in self._marks[1:] if ratio.total in m and ratio.per in m]
        steps = [
            (b[ratio.total] - a[ratio.total], b[ratio.per] - a[ratio.per])
            for a, b in itertools.pairwise(marks)
        ]
        follows = self._signal is not None and ratio.per == "items"
        times = [mark[SECONDS] for mark in marks] if follows else []
        seconds = [b - a for a, b in itertools.pairwise(times)]
        estimate = ratio_estimate(steps, ratio.scale, metric, seconds)
        return self._at_arrivals(estimate) if follows and estimate is not None else estimate

    def _at_arrivals(self, estimate: Estimate) -> Estimate:
        """Widen the error by two effects: requests at the window's ends, and requests of random sizes."""
        signal = self._signal
        rate = signal.mean if signal is not None and signal.counts_requests else None
        items = self.total("items") or 0.0
        if rate is None or items <= 0.0:
            return estimate
        ends = (items - rate * self.seconds) / items
        return estimate.widened(estimate.mean * math.hypot(ends, SIZES / math.sqrt(items)))


def offering(meters: Sequence[Meter], context: Context) -> list[Meter]:
    """Return the meters, with those that send load set to the requested one.

    Raises:
        InvalidInput: no meter sends load, or none can send this load.
    """
    if not any(isinstance(meter, OffersLoad) for meter in meters):
        requested = ", ".join(f"{name} = {value:g}" for name, value in context.items())
        raise InvalidInput(
            f"no load generator is configured, so {requested} cannot be set",
            hint="try it under the present load",
        )
    return [m.offering(context) if isinstance(m, OffersLoad) else m for m in meters]
