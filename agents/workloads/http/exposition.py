"""A service's Prometheus text: latencies, failures, counters, CPU time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.host.http.local_http import LocalHttp
from agents.load.exposition import (
    ACCEPT,
    Histogram,
    Samples,
    counter,
    declared,
    gauge,
    histogram,
    parse,
    scrape,
)
from agents.load.meter import Totals
from agents.load.prometheus import Figures
from agents.workloads.http.config import ServiceConfig
from agents.workloads.http.metric_config import POSITION, ExportedRatio, Series
from tuner.core import (
    ActuationError,
    CounterStep,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    demand,
    reraised,
)

CPU = "process_cpu_seconds_total"
STARTED = "process_start_time_seconds"
"""The names used by Prometheus' own client libraries."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values at one moment: histograms in ms, ratios as numerator and denominator, and the load."""

    histograms: Mapping[str, Histogram]
    ratios: Mapping[str, tuple[float, float]]
    load: float | None


class Exposition:
    """One service's text.

    Raises:
        InvalidInput: it has no such metric; the hint lists the available ones.
        DeviceLost, ActuationError: it does not answer.
    """

    def __init__(self, http: LocalHttp, config: ServiceConfig) -> None:
        self.url = str(http.client.build_request("GET", config.metrics).url)
        self._http, self._path = http, config.metrics
        self._latency, self._failures, self._exported = (
            config.latency,
            config.failures,
            config.exported,
        )
        self._effects = [one.effect_ratio for one in config.knobs if one.effect_ratio is not None]
        histograms = [s for s in (config.latency, *config.exported.histograms.values()) if s.name]
        demanded = [*histograms, *([config.exported.load] if config.exported.load.name else [])]
        try:
            text = self._text()
        except DeviceLost:
            raise
        except ActuationError:
            if demanded or config.failures.name:
                raise
            text = ""  # our own load needs no metrics
        needed = [
            *((one, "histogram") for one in histograms),
            (config.failures, "counter"),
            (config.exported.load, "gauge"),
        ]
        missing = [w for one, kind in needed if one.name and (w := self._missing(one, kind, text))]
        if missing:
            available = [name for _, kind in missing for name in declared(text, kind)]
            raise InvalidInput(
                f"{self.url} has no {' and no '.join(metric for metric, _ in missing)}",
                hint=f"available: {', '.join(dict.fromkeys(available)) or 'none'}",
            )
        self.has_cpu_time = config.cpu_time and CPU in declared(text, "counter")
        self.has_start_time = STARTED in declared(text, "gauge")

    def figures(self) -> Figures:
        """Return the present values. Raises MeasurementError."""
        good, failed = self._latency, self._failures
        samples = self._samples(*(series for series in (good, failed) if series.name))
        count = counter(samples, failed.name, failed.keep) if failed.name else 0.0
        return Figures(_in_ms(samples, good), round(count))

    def snapshot(self) -> Snapshot:
        """Return the further histograms, the ratios and the current load.

        Raises MeasurementError.
        """
        exported, ratios = self._exported, (*self._exported.ratios, *self._effects)
        series = [*exported.histograms.values(), *(one for r in ratios for one in r.series)]
        samples = self._samples(*series, *([exported.load] if exported.load.name else []))
        _demand_counters(samples, [one for ratio in ratios for one in ratio.series])
        return Snapshot(
            {name: _in_ms(samples, one) for name, one in exported.histograms.items()},
            {name: parts for one in ratios for name, parts in _parts(samples, one).items()},
            gauge(samples, exported.load.name, exported.load.keep) if exported.load.name else None,
        )

    def counting(self) -> Totals:
        """Start counting the CPU time and the items, if available. Raises MeasurementError.

        Every series of every counter in use is compared: another's growth can hide the reset of one.
        """
        if not self.counts and not self.has_start_time:
            return dict
        first = last = self._samples(*self._series())
        counters = {"cpu_s": Series(CPU)} if self.has_cpu_time else {}
        counters |= {"items": self._exported.items} if self._exported.items.name else {}

        def total() -> Mapping[str, float]:
            nonlocal last
            before, last = last, self._samples(*self._series())
            now, where = self.counters(last), f"at {self.url}"
            steps = ((f"{k} {where}", v, now.get(k, 0.0)) for k, v in self.counters(before).items())
            demand(
                CounterStep(self.url, 0.0, 0.0, start_s(before), start_s(last)),
                *itertools.starmap(CounterStep, steps),
            )
            return {
                name: math.fsum(
                    sign * counter(s, one.name, one.keep) for sign, s in ((1, last), (-1, first))
                )
                for name, one in counters.items()
            }

        return total

    def samples(self, text: str) -> Samples:
        """Return the samples of a text that figures use. Raises MeasurementError."""
        return parse(text, [one.name for one in self._series()], self.url)

    def counters(self, samples: Samples) -> Mapping[str, float]:
        """Return the value of each series of the counters that figures use, by its name and labels."""
        return {
            f"{s.name}{dict(sorted(s.labels.items())) or ''}": s.value
            for s in samples
            if samples.types.get(s.name) != "gauge"
            and any(s.name in one.counted and one.keep(s.labels) for one in self._series())
        }

    def _series(self) -> Iterator[Series]:
        """Yield every counter and histogram in use, and the start time."""
        exported = self._exported
        ratios = (one for ratio in (*exported.ratios, *self._effects) for one in ratio.series)
        used = (
            self._latency,
            self._failures,
            exported.items,
            *exported.histograms.values(),
            *ratios,
        )
        yield from (one for one in used if one.name)
        yield from (Series(CPU), Series(STARTED))

    @property
    def counts(self) -> bool:
        """Whether any figure uses a counter of the text."""
        return self.has_cpu_time or len([*self._series()]) > 2

    def started(self) -> str:
        """Return the service's start time as it reports it. Raises ActuationError, DeviceLost."""
        return self._started(self._text())

    def started_s(self) -> float | None:
        """Return the service's start time in s since 1970; None if it is not reported.

        Raises:
            ActuationError, DeviceLost: it does not answer.
        """
        try:
            return float(self.started())
        except ValueError:
            return None

    def present(self) -> tuple[float, str]:
        """Return the current gauge of the load, and the service's start time.

        Raises:
            ActuationError, DeviceLost: the service does not report one of them.
        """
        load, text = self._exported.load, self._text()
        with reraised(ActuationError, MeasurementError):
            value = gauge(parse(text, (load.name,), self.url), load.name, load.keep)
        return value, self._started(text)

    def _started(self, text: str) -> str:
        """Return the start time in a text in s since 1970; empty without one. Raises ActuationError."""
        with reraised(ActuationError, MeasurementError):
            samples = parse(text, (STARTED,), self.url)
        return next((repr(one.value) for one in samples), "")

    def _text(self) -> str:
        """Return the text. Raises ActuationError, DeviceLost."""
        return self._http.call("GET", self._path, accept=ACCEPT).text

    def _samples(self, *series: Series) -> Samples:
        """Return the samples of some series. Raises MeasurementError."""
        return scrape(self._http.client, self.url, [one.name for one in series])

    def _missing(self, series: Series, kind: str, text: str) -> tuple[str, str] | None:
        """Return a series that the text does not declare, and its kind; None if it declares it."""
        forms = {series.name}
        if kind == "counter":
            forms |= {series.name.removesuffix("_total"), f"{series.name}_total"}
        return None if forms & {*declared(text, kind)} else (f"{kind} {series.name!r}", kind)


def start_s(samples: Samples) -> float:
    """Return the service's start time in s since 1970; 0 if it is not reported."""
    return sum(sample.value for sample in samples if sample.name == STARTED)


def _demand_counters(samples: Samples, series: Sequence[Series]) -> None:
    """Check that every counter is available.

    Raises MeasurementError, which names the missing ones.
    """
    wrong: list[MeasurementError] = []
    for one in series:
        try:
            counter(samples, one.name, one.keep)
        except MeasurementError as error:
            wrong.append(error)
    if wrong:
        messages = "; ".join(dict.fromkeys(error.message for error in wrong))
        raise MeasurementError(messages, hint=wrong[0].hint)


def _in_ms(samples: Samples, series: Series) -> Histogram:
    """Return a histogram with its edges in ms."""
    buckets = histogram(samples, series.name, series.keep)
    return Histogram(tuple(edge * series.unit_ms for edge in buckets.edges), buckets.counts)


def _parts(samples: Samples, ratio: ExportedRatio) -> dict[str, tuple[float, float]]:
    """Return numerator and denominator of a ratio, by its name or by each position's."""
    above, below, *minus = ratio.series
    per = counter(samples, below.name, below.keep)
    if not ratio.by:
        less = sum(counter(samples, one.name, one.keep) for one in minus)
        return {ratio.name: (counter(samples, above.name, above.keep) - less, per)}
    places = {s.labels.get(ratio.by, "") for s in samples if above.keep(s.labels)}
    parts = {}
    for place in sorted(int(one) for one in places if one.isascii() and one.isdigit()):
        at = replace(above, labels={**(above.labels or {}), ratio.by: str(place)})
        name = ratio.name.replace(POSITION, str(place + 1))
        parts[name] = (counter(samples, at.name, at.keep), per)
    return parts
