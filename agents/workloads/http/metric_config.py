"""The metrics in a service's file, read from its Prometheus text, from JSON, or from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator

from agents.host.service_files import (
    AbsolutePath,
    Compiled,
    DeclaredMetric,
    OwnName,
    UrlPath,
    own_name,
)
from tuner.core import NUMBER, ConfigError, Metric, Quantity, Scope
from tuner.typed_toml import Filled, Table

UNITS_MS: Mapping[str, float] = {"s": 1000.0, "ms": 1.0}
LATENCY = {f"latency_{unit}": factor for unit, factor in UNITS_MS.items()}
"""The groups of a log line with a request's latency."""
ITEMS = "items"
METRICS = "/metrics"
POSITION = "{position}"
"""Placeholder in a ratio's name: its position, from 1, in a label that counts from 0."""


def _ratio_name(name: str) -> str:
    """Return a ratio's name, perhaps with a position. Raises ConfigError."""
    own_name(name.replace(POSITION, "1"))
    return name


@dataclass(frozen=True, slots=True)
class Series:
    """One metric's series in a Prometheus text; none with an empty name. `unit_ms` is a histogram's."""

    name: str = ""
    labels: Mapping[str, str] | None = None
    unit_ms: float = 1.0

    @property
    def counted(self) -> tuple[str, ...]:
        """The names of its samples that only grow: a counter's, and a histogram's numbers."""
        return (self.name, *(f"{self.name}_{end}" for end in ("total", "count", "bucket")))

    def keep(self, labels: Mapping[str, str]) -> bool:
        """Whether a series has all the labels."""
        return (self.labels or {}).items() <= labels.items()


@dataclass(frozen=True, kw_only=True)
class CounterTable(Table):
    """A counter, for example of the failed requests."""

    counter: Filled
    labels: dict[str, str] | None = None

    @property
    def series(self) -> Series:
        """Its series."""
        return Series(self.counter, self.labels)


@dataclass(frozen=True, kw_only=True)
class LatencyTable(Table):
    """The histogram of the latency, or the path of the metrics alone."""

    metrics: UrlPath | None = None
    histogram: str = ""
    labels: dict[str, str] | None = None
    unit: Literal["s", "ms"] | None = None

    @property
    def series(self) -> Series:
        """The histogram's series."""
        return Series(self.histogram, self.labels, UNITS_MS[self.unit or "s"])


@dataclass(frozen=True, kw_only=True)
class HistogramTable(LatencyTable):
    """A further histogram, whose quantiles become NAME_p50_ms, NAME_p95_ms and NAME_p99_ms."""

    name: OwnName
    histogram: Filled = field()  # without it, the inherited default counts


@dataclass(frozen=True, kw_only=True)
class SignalTable(Table):
    """The signal that a gauge reports: the current load."""

    name: OwnName
    gauge: Filled
    labels: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class ExportedRatio(Table):
    """A ratio of counters: (`counter` - those in `minus`) / `per`. With `by`, one metric per position.

    Raises:
        ConfigError: its name has a position without a label, or the reverse.
    """

    name: Annotated[str, AfterValidator(_ratio_name)]
    counter: Filled
    minus: tuple[str, ...] = ()
    per: Filled
    by: str = ""
    labels: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if (POSITION in self.name) is not bool(self.by):
            raise ConfigError(f'"{POSITION}" in its name needs by = "LABEL"')

    @property
    def series(self) -> tuple[Series, ...]:
        """Every series that it uses: numerator, denominator, and those subtracted from the numerator."""
        return tuple(Series(one, self.labels) for one in (self.counter, self.per, *self.minus))


@dataclass(frozen=True, slots=True)
class ExportedMetrics:
    """The metrics read from a service's Prometheus text, besides latencies and failures.

    `items` counts the items of work, if they are not requests. `signal` is the name of the signal that
    the gauge `load` reports.
    """

    items: Series = Series()
    signal: str = ""
    load: Series = Series()
    histograms: Mapping[str, Series] = field(default_factory=dict)
    ratios: tuple[ExportedRatio, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JsonPlace(Table):
    """A place in a JSON answer: the path of the request, and the keys through the answer."""

    path: UrlPath
    json: Filled

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys."""
        return tuple(self.json.split("."))


@dataclass(frozen=True, kw_only=True)
class JsonNumber(DeclaredMetric, JsonPlace):
    """A metric: the number at a JSON path (true is 1), or its growth divided by that of another one."""

    name: OwnName
    per: str = ""

    @property
    def metric(self) -> Metric:
        """The metric."""
        return Metric(self.name, scope=Scope.SERVICE, quantity=self.quantity)


@dataclass(frozen=True, kw_only=True)
class LogLines(Table):
    """A log: the pattern of a good line, with its groups, and that of a failed request.

    Raises:
        ConfigError: the pattern has no named group, or one that no metric can have.
    """

    file: AbsolutePath
    pattern: Compiled
    failed: Compiled | None = None
    metric: tuple[DeclaredMetric, ...] = ()

    def __post_init__(self) -> None:
        names = self.pattern.groupindex.keys()
        if not names:
            raise ConfigError(
                "pattern has no named group",
                hint=f"write it like 'took=(?P<latency_s>{NUMBER})'",
            )
        if names >= LATENCY.keys():
            raise ConfigError(
                f"pattern: {' and '.join(LATENCY)} are the same", hint="leave one out"
            )
        for one in self.metric:
            if one.name not in names - {*LATENCY, ITEMS}:
                raise ConfigError(f"the pattern has no group {one.name!r}", hint="add (?P<…>…)")
        for name in self.metrics:
            own_name(name)

    @property
    def latency(self) -> str:
        """The group with a request's latency; empty if the log has none."""
        return next((name for name in LATENCY if name in self.pattern.groupindex), "")

    @property
    def has_items(self) -> bool:
        """Whether each line is one or more items of work."""
        return bool(self.latency) or ITEMS in self.pattern.groupindex

    @cached_property
    def metrics(self) -> Mapping[str, Quantity]:
        """The quantities of its other groups."""
        declared = {one.name: one.quantity for one in self.metric}
        names = [name for name in self.pattern.groupindex if name not in (*LATENCY, ITEMS)]
        return {name: declared.get(name) or Quantity("1", signed=True) for name in names}

    @property
    def listed(self) -> tuple[Metric, ...]:
        """The metrics of its other groups."""
        return tuple(
            Metric(name, scope=Scope.SERVICE, quantity=one) for name, one in self.metrics.items()
        )
