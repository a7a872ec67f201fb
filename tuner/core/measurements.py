"""Measured windows: readings, the facts beside them, bounded raw values, and measurements."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tuner.core.errors import MeasurementError
from tuner.core.estimates import ABSURD, Estimate, refuse_negative
from tuner.core.plans import Context
from tuner.core.quantities import Count, Finite, Seconds, Span

FAILURES = "failures"
"""The subject of a note: the failed requests of our load, by reason."""
FOREIGN_LOAD = "foreign_load"
"""The subject of a note: why the share of other processes on a device is unknown."""
POWER_PROFILES = "power_profiles"
"""The subject of a note: the vendor's power profiles in force. A hold ends when they change."""
_MOST_LATENCIES = 4_096
"""More latencies become a histogram."""
_BUCKETS = 255
MOST_VALUES = 6_144
"""The most numbers of a window. As JSON they need less than half of a request, compressed 64 kB at most."""
ABSENT = -1.0
"""A total that a reading lacks; every total is at least 0."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load within a window.

    `completed` is the number of items that were completed, `failed` of those that were not. `utilisation`
    is the busy share of the machine's cores, None if unavailable.

    Raises:
        MeasurementError: the share is not finite, or a number is negative.
    """

    completed: Count = 0
    failed: Count = 0
    utilisation: float | None = None

    def __post_init__(self) -> None:
        share = self.utilisation or 0.0
        if not (math.isfinite(share) and min(share, self.completed, self.failed) >= 0):
            raise MeasurementError(f"not a valid load: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The results of one window: an estimate per metric, and the circumstances that qualify them.

    `context` is the load as far as it does not depend on the setting. It is `arrival_rate_per_s` if
    requests arrive independently of the answers; under our closed loop it is `requests_in_system`, the
    number of callers; empty if unknown. `seconds` is the window's length on the device's clock,
    `overhead_s` the time for applying, settling and warming up beside it. `throttled` names the observed
    throttle reasons; `foreign` is the share of the machine that other processes used.

    Raises:
        MeasurementError: a metric whose unit forbids it is negative, the window has no length, or
            its overhead, foreign share or context is not finite.
    """

    estimates: Mapping[str, Estimate]
    started_at: datetime
    seconds: Seconds
    overhead_s: Span = 0.0
    load: Load = Load()
    context: Context = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    foreign: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each metric, in words: `latency_p99_ms` → `our load generator`.

    Other names are subjects of notes: `foreign_load` → `unknown: NVML lists no process`.
    """
    samples: WindowSamples | None = field(default=None, repr=False)
    """The raw values, of windows that are kept as evidence; an older agent sends none."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise MeasurementError(f"a window cannot be {self.seconds} seconds long")
        if not all(math.isfinite(x) and x >= 0.0 for x in (self.overhead_s, self.foreign)):
            raise MeasurementError(
                f"overhead_s = {self.overhead_s} or foreign = {self.foreign} cannot be right"
            )
        if not all(map(math.isfinite, self.context.values())):
            raise MeasurementError(f"a window cannot be measured at {dict(self.context)}")
        refuse_negative(self.estimates)


FOREIGN_SHARE = 0.15
"""The default limit on the share of the machine that other processes use in a window: our choice."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of a window so far, by name; a value that is not available yet is absent.

    `totals` are sums since the window was opened: `energy_j`, `items`, `failed`, `cpu_s` (of the workload's
    processes), `busy_s` (CPU seconds of the whole host), `foreign_s` (while other processes computed on the
    device), `throttled_<reason>_s`. `estimates` are finished metrics, with an uncertainty that only the
    meter can give. `notes` qualify the values in words, by subject (`foreign_load`). `facts` are second
    witnesses, which the rules of `tuner.core.witnesses` compare with the figures. `latencies` are those
    behind the quantiles in `estimates`, if the meter has them.

    Raises:
        MeasurementError: a total is negative, not a number or absurdly large.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    latencies: Latencies | None = None

    def __post_init__(self) -> None:
        for name, total in self.totals.items():
            if not 0.0 <= total < ABSURD:
                raise MeasurementError(f"the total {name} cannot be {total}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The latencies of a window in ms: each one in `each_ms`, or a histogram.

    `edges_ms` are the upper edges of the buckets but the last, which is open; `counts` are those of all
    buckets. `binned` is set if we made the histogram of single values, after computing the quantiles.
    `together` is as in `quantile_estimate`.
    """

    each_ms: tuple[Finite, ...] = ()
    together: Finite = 1.0
    edges_ms: tuple[Finite, ...] = ()
    counts: tuple[Count, ...] = ()
    binned: bool = False

    @classmethod
    def of(cls, each_ms: Sequence[float], together: float = 1.0) -> Latencies:
        """Return single latencies, as a histogram of equal ratios if there are more than 4,096."""
        if len(each_ms) <= _MOST_LATENCIES:
            return cls(each_ms=tuple(each_ms), together=together)
        least, most = max(min(each_ms), 1e-6), max(max(each_ms), 2e-6)
        ratio = math.log(most / least) / _BUCKETS
        edges = tuple(dict.fromkeys(least * math.exp(k * ratio) for k in range(_BUCKETS)))
        counts = [0] * (len(edges) + 1)
        for one in each_ms:
            counts[bisect_left(edges, one)] += 1
        return cls(together=together, edges_ms=edges, counts=tuple(counts), binned=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSamples:
    """The readings of one window on one device.

    `clock_s` and `wall_s` are the start and the end on the monotonic clock, and in seconds since 1970.
    `seconds` is the time of each reading since the start, `totals` has each total at each reading, `ABSENT`
    where a reading lacks it. `ratios` names the metrics that are a ratio of two totals over the batches
    between readings: the totals, and their factor. Meters finished the other metrics. `runs` is whether a
    reading ends with a run of a program, at any time.
    """

    clock_s: tuple[Finite, Finite]
    wall_s: tuple[Finite, Finite]
    seconds: tuple[Span, ...]
    totals: Mapping[str, tuple[Finite, ...]]
    runs: bool = False
    ratios: Mapping[str, tuple[str, str, Finite]] = field(default_factory=dict)
    latencies: Latencies | None = None

    def bounded(self) -> WindowSamples:
        """Return the samples; of more than `MOST_VALUES` the last reading, if need be without latencies.

        The metrics of a single reading count as finished by their meter.
        """
        if self._values() <= MOST_VALUES:
            return self
        totals = {name: values[-1:] for name, values in self.totals.items()}
        last = replace(self, seconds=self.seconds[-1:], totals=totals, ratios={})
        return last if last._values() <= MOST_VALUES else replace(last, latencies=None)

    def _values(self) -> int:
        """Return the count of numbers."""
        own = self.latencies or Latencies()
        return (
            len(self.seconds) * (1 + len(self.totals))
            + len(own.each_ms)
            + len(own.edges_ms)
            + len(own.counts)
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """The input of a rule. Its `why`, if it has one, is the reason for a missing second witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterAndPower(Fact):
    """A device's energy by its counter, and by power × time; the latter is None if unknown. Both in J.

    `most_w` is the greatest power of the samples, `spread_w` its difference from the least, `gap_s` the
    longest time between two samples, `rest_j` the doubtful energy at rest. `still_s` is the longest time
    during which the counter did not change although the device worked.
    """

    meter: str
    counted_j: float
    power_j: float | None = None
    most_w: float = 0.0
    spread_w: float = 0.0
    gap_s: float = 0.0
    rest_j: float = 0.0
    still_s: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneReads(Fact):
    """Two energy counters of one kind, in µJ. Each entry of `reads` is first, second, first again.

    Both counters wrap at `range_uj`.
    """

    first: str
    second: str
    range_uj: int
    reads: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse(Fact):
    """Whether the workload's processes compute on a device, and on which others of the host.

    `device` is the value for `--device` and `name` the displayed name. `ours` is whether processes of the
    workload run on it; `elsewhere` has the other devices on which they do, as `--device` value and name.
    `looks` is the number of observations, `busy` whether the device worked in any of them.
    """

    device: str
    name: str
    ours: bool
    busy: bool
    looks: int
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPlace(Fact):
    """The devices on which a workload computes, and the items that it served.

    `whole` is whether `uses` covers all devices of the target.
    """

    uses: tuple[DeviceUse, ...]
    items: float
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequests(Fact):
    """A service's counter beside the requests that our own load completed in `seconds`.

    `in_flight` is the greatest number of its requests at once. `counts` is False if the counter does not
    count requests.
    """

    counter: str
    counted: float
    completed: float
    in_flight: float
    seconds: float
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrapes(Fact):
    """The counters read over each of several connections to one address, in rounds.

    A round begins once every connection of the previous round has answered; the last one may be incomplete.
    `started` has the programs' start times among the answers; `processes` listen at the address.
    """

    url: str
    rounds: tuple[tuple[Mapping[str, float], ...], ...] = ()
    started: frozenset[float] = frozenset()
    processes: int = 1
    why: str = ""


@dataclass(frozen=True, slots=True)
class CounterStep(Fact):
    """A counter, or a part of one, at two readings, with the program's start time at each if known."""

    what: str
    before: float
    now: float
    started_before: object = None
    started_now: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedNumber(Fact):
    """A number that a pattern matched, between the texts `before` and `after` of its line.

    `delimited` is whether the pattern itself also matches the text after the number; `lead` is the text
    before it that the pattern matches; `unit` is its declared unit. `later` is a later line, or the end of
    the output, that begins like the match but has no number in its place.
    """

    text: str
    before: str
    after: str
    delimited: bool = False
    unit: str = ""
    later: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class LastObject(Fact):
    """The last line of an output that begins a JSON object; `broken` is why it cannot be read, if so."""

    line: str
    broken: str
