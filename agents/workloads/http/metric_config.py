"""The metrics in a service's file, read from its Prometheus text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.host.service_files.tables import checked, inner
from tuner.core import ConfigError, standard

UNITS_MS: Mapping[str, float] = {"s": 1000.0, "ms": 1.0}
POSITION = "{position}"
"""Placeholder in a ratio's name: its position, from 1, in a label that counts from 0."""
LATENCY_KEYS = {"metrics": str, "histogram": str, "labels": dict, "unit": str}
HISTOGRAM_KEYS = {"name": str, "histogram": str, "labels": dict, "unit": str}
COUNTER_KEYS = {"counter": str, "labels": dict}
RATIO_KEYS: dict[str, Any] = {"name": str, "counter": str, "minus": list, "per": str}
RATIO_KEYS |= {"by": str, "labels": dict}
SIGNAL_KEYS = {"name": str, "gauge": str, "labels": dict}


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


@dataclass(frozen=True, slots=True)
class ExportedRatio:
    """A ratio of counters: (`counter` - those in `minus`) / `per`. With `by`, one metric per position."""

    name: str
    counter: Series
    per: Series
    minus: tuple[Series, ...] = ()
    by: str = ""

    @property
    def series(self) -> tuple[Series, ...]:
        """Every series that it uses."""
        return (self.counter, self.per, *self.minus)


@dataclass(frozen=True, slots=True)
class ExportedMetrics:
    """The metrics read from a service's Prometheus text, besides latencies and failures.

    `histograms` become the quantiles NAME_p50_ms, NAME_p95_ms and NAME_p99_ms. `items` counts the items of
    work, if they are not requests. `signal` is the name of the signal that the gauge `load` reports.
    """

    items: Series = Series()
    signal: str = ""
    load: Series = Series()
    histograms: Mapping[str, Series] = field(default_factory=dict)
    ratios: tuple[ExportedRatio, ...] = ()

    @property
    def counters(self) -> tuple[Series, ...]:
        """The counters among these series."""
        of_ratios = (series for ratio in self.ratios for series in ratio.series)
        return (*([self.items] if self.items.name else []), *of_ratios)


def exported_metrics(where: str, table: Mapping[str, Any]) -> ExportedMetrics:
    """Parse a file's tables of metrics. Raises ConfigError."""
    items = inner(f"{where}: items", table, "items", COUNTER_KEYS, "counter")
    signal = inner(f"{where}: signal", table, "signal", SIGNAL_KEYS, "name", "gauge")
    histograms: dict[str, Series] = {}
    for n, one in enumerate(table.get("histogram", []), 1):
        at = f"{where}: histogram {n}"
        entry = checked(at, one, HISTOGRAM_KEYS, "name", "histogram")
        histograms[_fresh(at, entry["name"], histograms)] = histogram_of(at, entry)
    ratios: dict[str, ExportedRatio] = {}
    for n, one in enumerate(table.get("ratio", []), 1):
        at = f"{where}: ratio {n}"
        entry = checked(at, one, RATIO_KEYS, "name", "counter", "per")
        ratio = ratio_of(at, entry)
        ratios[_fresh(at, entry["name"], ratios)] = ratio
    return ExportedMetrics(
        items=Series(items.get("counter", ""), items.get("labels")),
        signal=_fresh(f"{where}: signal", signal["name"], ()) if signal else "",
        load=Series(signal.get("gauge", ""), signal.get("labels")),
        histograms=histograms,
        ratios=tuple(ratios.values()),
    )


def ratio_of(where: str, entry: Mapping[str, Any]) -> ExportedRatio:
    """Return the ratio of a checked table. Raises ConfigError."""
    name, by, labels = entry["name"], entry.get("by", ""), entry.get("labels")
    if (POSITION in name) is not bool(by):
        raise ConfigError(f'{where}: "{POSITION}" in its name needs by = "LABEL"')
    minus = entry.get("minus", [])
    if not all(isinstance(one, str) for one in minus):
        raise ConfigError(f"{where}: minus must be a list of counters, not {minus!r}")
    return ExportedRatio(
        name,
        Series(entry["counter"], labels),
        Series(entry["per"], labels),
        tuple(Series(one, labels) for one in minus),
        by,
    )


def histogram_of(where: str, entry: Mapping[str, Any]) -> Series:
    """Return the histogram of a checked table; empty if it names none. Raises ConfigError."""
    unit = entry.get("unit", "s")
    if unit not in UNITS_MS:
        raise ConfigError(f"{where}: unit cannot be {unit!r}", hint="choose s or ms")
    return Series(entry.get("histogram", ""), entry.get("labels"), UNITS_MS[unit])


def _fresh(where: str, name: str, taken: object) -> str:
    """Return a metric's name if it is not taken. Raises ConfigError."""
    assert isinstance(taken, Mapping | tuple)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name.replace(POSITION, "1")):
        raise ConfigError(
            f"{where}: name cannot be {name!r}", hint="write it like accepted_per_step"
        )
    if name in taken or standard(name) is not None:
        raise ConfigError(f"{where}: duplicate metric {name}", hint="give it another name")
    return name
