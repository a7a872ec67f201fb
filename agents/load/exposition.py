"""The reader of the Prometheus text format, in which services report their metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tuner.core import LARGEST, CounterStep, Estimate, MeasurementError, bucketed_quantile, demand
from tuner.foreign_bodies import lines

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

ANSWER_S = 10.0
ACCEPT = "text/plain;version=0.0.4, */*;q=0.1"
"""Without this header some programs (Quarkus, client_java) answer in OpenMetrics, with exemplars."""
EXEMPLAR = re.compile(r"(?<=[\w.]) # \{[^}]*\} [^\"]*$")
TYPE = re.compile(r'^[ \t\ufeff]*#[ \t]*TYPE[ \t]+"?(\S+?)"?[ \t]+(\S+)\s*$', re.MULTILINE)
NAME = re.compile(r'\{"([^"]*)"|[^{\s]*')
"""The name at the beginning of a line; one with other characters is in quotes within the braces."""
UNTYPED = ("untyped", "unknown")
SUFFIXES = ("_bucket", "_count", "_sum", "_total", "")

Labels = Mapping[str, str]


class Samples(list["Sample"]):
    """The samples of some metrics from `where`, and the types that the text declares for all metrics."""

    def __init__(self, samples: Iterable[Sample], types: Mapping[str, str], where: str) -> None:
        super().__init__(samples)
        self.types, self.where = types, where


def scrape(client: httpx2.Client, url: str, names: Collection[str]) -> Samples:
    """Return the current samples of the named metrics from a URL.

    `names` are the metrics' names without the suffixes of histograms and counters. Only their lines
    are parsed, because an exposition may have half a megabyte.

    Raises:
        MeasurementError: no successful response, or not in the Prometheus text format.
    """
    try:
        response = client.get(url, timeout=ANSWER_S, headers={"Accept": ACCEPT})
        response.raise_for_status()
    except httpx2.HTTPError as error:
        raise MeasurementError(f"{url} returned no metrics: {error}") from None
    return parse(response.text, names, url)


def parse(text: str, names: Collection[str], where: str) -> Samples:
    """Return the samples of the named metrics in a text. Raises MeasurementError: it cannot be parsed."""
    sample_names = {name + suffix for name in names for suffix in SUFFIXES}
    named = [EXEMPLAR.sub("", ln) for ln in _trimmed(text) if _name(ln) in sample_names]
    try:
        families = list(text_string_to_metric_families("\n".join([*named, ""])))
    except ValueError as error:
        raise MeasurementError(f"{where} is not Prometheus text: {error}") from None
    series: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
    for sample in (sample for family in families for sample in family.samples):
        key = sample.name, frozenset(sample.labels.items())
        if repr(series.setdefault(key, sample).value) != repr(sample.value):
            raise MeasurementError(
                f"{where} has {sample.name}{sample.labels or ''} twice, with different values",
                hint="let one program or registry alone report it",
            )
    return Samples(series.values(), dict(TYPE.findall(text)), where)


def declared(text: str, kind: str) -> list[str]:
    """Return the names of the metrics of a type, like `histogram` or `counter`.

    Some libraries (VictoriaMetrics/metrics, jmx_exporter) declare no type or `untyped`. Such a metric is a
    histogram if it has buckets; otherwise it may be a counter or a gauge.
    """
    types = dict(TYPE.findall(text))
    typed = [name for name, given in types.items() if given == kind]
    sample_names = {
        name + suffix
        for name, given in types.items()
        for suffix in SUFFIXES
        if given not in UNTYPED
    }
    names = dict.fromkeys(_name(line) for line in _trimmed(text) if line[:1] not in ("", "#"))
    shown = [name for name in names if name and name not in sample_names]
    if kind == "histogram":
        return typed + [n.removesuffix("_bucket") for n in shown if n.endswith("_bucket")]
    return typed + [name for name in shown if not name.endswith("_bucket")]


def counter(samples: Samples, name: str, keep: Callable[[Labels], bool]) -> float:
    """Return a counter's sum over the series whose labels pass `keep`.

    The sum is 0 for a counter that is declared but has no series yet. The counter has the given name, or
    that name with `_total` as in OpenMetrics, never both: one service has a gauge `x` beside a counter
    `x_total` (client_golang 829), another two counters of these names.

    Raises:
        MeasurementError: the text has no such counter, or the sum is negative or not finite.
    """
    named = {s.name for s in samples}
    called = [n for n in (name, f"{name}_total") if n in named and samples.types.get(n) != "gauge"]
    if not called:
        forms = (name, name.removesuffix("_total"), f"{name}_total")
        if any(samples.types.get(form) == "counter" for form in forms):
            return 0.0
        raise _missing(samples, "counter", name)
    total = sum(s.value for s in samples if s.name == called[0] and keep(s.labels))
    if not (math.isfinite(total) and total >= 0.0):
        raise MeasurementError(f"the counter {called[0]} is at {total:g}")
    return total


def gauge(samples: Samples, name: str, keep: Callable[[Labels], bool]) -> float:
    """Return the sum of the gauge with this exact name over the series whose labels pass `keep`.

    Raises:
        MeasurementError: the text has no such series, or the sum is negative, too large or no number.
    """
    values = [s.value for s in samples if s.name == name and keep(s.labels)]
    if not values:
        raise _missing(samples, "gauge", name)
    total = sum(values)
    if not 0.0 <= total <= LARGEST:
        raise MeasurementError(f"the gauge {name} is at {total:g}")
    return total


def _missing(samples: Samples, kind: str, name: str) -> MeasurementError:
    """Return the error for an absent metric, with the available names of its kind."""
    names = [n for n, metric_kind in samples.types.items() if metric_kind == kind]
    return MeasurementError(
        f"{samples.where} has no {kind} {name!r}", hint=f"available: {', '.join(names) or 'none'}"
    )


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram with the number of observations in each bucket; `counts` are not cumulative.

    `edges` are the upper edges of the buckets, ascending; the last one is infinite.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of all observations."""
        return sum(self.counts)

    def since(self, earlier: Histogram) -> Histogram:
        """Return the observations since an earlier reading, in which an absent low bucket counts as 0.

        Raises:
            MeasurementError: a count decreased or a bucket disappeared, so the program was restarted.
        """
        new = len(self.edges) - len(earlier.edges)
        then = (*[0] * new, *earlier.counts)
        kept = new >= 0 and self.edges[new:] == earlier.edges
        steps = list(zip(then, self.counts, strict=False))
        same = CounterStep("a histogram's bucket", *((0, 0) if kept else (1, 0)))
        demand(same, *(CounterStep("a histogram's bucket", *step) for step in steps))
        return Histogram(self.edges, tuple(now - before for before, now in steps))

    def quantile(self, quantile: float) -> Estimate:
        """Estimate a quantile, with the edges of its bucket as bounds. Raises MeasurementError."""
        return bucketed_quantile(self.edges, self.counts, quantile)


def histogram(samples: Sequence[Sample], name: str, keep: Callable[[Labels], bool]) -> Histogram:
    """Return the sum of a histogram over the series whose labels pass `keep`; empty if there are none.

    Raises:
        MeasurementError: the series have different buckets, or their buckets are not cumulative.
    """
    series: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket" and keep(sample.labels):
            rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            series.setdefault(rest, {})[_edge(sample, name)] = sample.value
    if not series:
        return Histogram((), ())
    edges = tuple(sorted({edge for one in series.values() for edge in one}))
    # Some exporters (nginx-lua-prometheus) omit the buckets below the first observation; these count as 0.
    if (
        any(tuple(sorted(one)) != edges[-len(one) :] for one in series.values())
        or edges[-1] != math.inf
    ):
        raise MeasurementError(f"the series of {name} do not have the same buckets up to +Inf")
    upto = [sum(one.get(edge, 0.0) for one in series.values()) for edge in edges]
    counts = [b - a for a, b in zip([0.0, *upto], upto, strict=False)]
    if not all(math.isfinite(count) and count >= 0.0 for count in counts):
        raise MeasurementError(f"the buckets of {name} are not cumulative")
    return Histogram(edges, tuple(round(count) for count in counts))


def _edge(sample: Sample, name: str) -> float:
    """Return a bucket's upper edge. Raises MeasurementError: it has none."""
    try:
        edge = float(sample.labels["le"])
    except (LookupError, ValueError):
        edge = math.nan
    if math.isnan(edge):
        raise MeasurementError(f"a bucket of {name} has no upper edge")
    return edge


def _trimmed(text: str) -> Iterator[str]:
    """Yield the lines of a text without blanks, or the mark of an editor, before them."""
    return (line.lstrip(" \t\ufeff") for line in lines(text))


def _name(line: str) -> str:
    """Return the metric's name at the beginning of a line."""
    match = NAME.match(line)
    return match[1] or match[0] if match else ""
