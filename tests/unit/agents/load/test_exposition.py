from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.load.exposition import (
    Histogram,
    counter,
    declared,
    gauge,
    histogram,
    parse,
    scrape,
)
from tests.errors import raised
from tuner.core import MeasurementError

TEXT = """
# HELP served_ms How long it took.
# TYPE served_ms histogram
served_ms_bucket{app="a",le="10.0"} 2.0
served_ms_bucket{app="a",le="100.0"} 5.0
served_ms_bucket{app="a",le="+Inf"} 6.0
served_ms_count{app="a"} 6.0
served_ms_sum{app="a"} 250.0
served_ms_bucket{app="a",worker="2",le="10.0"} 1.0
served_ms_bucket{app="a",worker="2",le="100.0"} 1.0
served_ms_bucket{app="a",worker="2",le="+Inf"} 1.0
served_ms_bucket{app="b",le="10.0"} 7.0
served_ms_bucket{app="b",le="100.0"} 7.0
served_ms_bucket{app="b",le="+Inf"} 7.0
served_ms_other_bucket{app="a",le="10.0"} broken
# TYPE asked counter
asked_total{path="/a \\"quoted\\" {brace}"} 3.0
"""


def of_app(app: str) -> Histogram:
    samples = parse(TEXT, ["served_ms"], "here")
    return histogram(samples, "served_ms", lambda labels: labels["app"] == app)


def test_a_histogram_is_summed_over_the_series_that_are_kept() -> None:
    assert of_app("a") == Histogram((10.0, 100.0, math.inf), (3, 3, 1))
    assert of_app("b") == Histogram((10.0, 100.0, math.inf), (7, 0, 0))
    assert of_app("c") == Histogram((), ())


def test_only_requested_metrics_are_parsed() -> None:
    (sample,) = parse(TEXT, ["asked"], "here")
    assert sample.labels == {"path": '/a "quoted" {brace}'}
    assert sample.value == 3.0
    with raised(MeasurementError, "here", "Prometheus"):
        parse(TEXT, ["served_ms_other"], "here")


def test_the_totals_since_a_state_are_the_difference() -> None:
    earlier = Histogram((10.0, 100.0, math.inf), (1, 3, 0))
    assert of_app("a").since(earlier).counts == (2, 0, 1)
    assert of_app("a").since(Histogram((), ())) == of_app("a")


@pytest.mark.parametrize(
    "earlier",
    [
        Histogram((10.0, 100.0, math.inf), (4, 0, 0)),
        Histogram((10.0, 50.0, math.inf), (0, 0, 0)),
        Histogram((10.0, math.inf), (0, 0)),
    ],
)
def test_a_counter_that_decreased_gives_no_measurement(earlier: Histogram) -> None:
    with pytest.raises(MeasurementError, match="went backwards"):
        of_app("a").since(earlier)
    with pytest.raises(MeasurementError, match="went backwards"):
        Histogram((), ()).since(earlier)


def test_a_bucket_below_the_first_counts_0_however_late_it_appears() -> None:
    """Exporters that omit buckets below the first observation (nginx-lua-prometheus 31, 39)."""
    few = ['m_bucket{x="1",le="1"} 2', 'm_bucket{x="1",le="+Inf"} 3']
    more = ['m_bucket{x="2",le="0.5"} 1', 'm_bucket{x="2",le="1"} 1', 'm_bucket{x="2",le="+Inf"} 1']
    before, after = (
        histogram(parse("\n".join(lines), ["m"], "here"), "m", lambda _: True)
        for lines in (few, [*few, *more])
    )
    assert after == Histogram((0.5, 1.0, math.inf), (1, 2, 1))
    assert after.since(before).counts == (1, 0, 0)
    with raised(MeasurementError, "restarted"):
        before.since(after)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (['m_bucket{x="1"} 1'], "no upper edge"),
        (['m_bucket{le="much"} 1'], "no upper edge"),
        (['m_bucket{le="NaN"} 1'], "no upper edge"),
        (['m_bucket{le="1"} 1'], r"same buckets up to \+Inf"),
        (['m_bucket{le="+Inf"} 1', 'm_bucket{w="2",le="1"} 1'], r"same buckets up to \+Inf"),
        (['m_bucket{le="1"} 5', 'm_bucket{le="+Inf"} 1'], "are not cumulative"),
        (['m_bucket{le="1"} NaN', 'm_bucket{le="+Inf"} 1'], "are not cumulative"),
    ],
)
def test_a_metric_that_is_not_a_histogram_gives_no_measurement(lines: list[str], why: str) -> None:
    samples = parse("\n".join(lines), ["m"], "here")
    with pytest.raises(MeasurementError, match=why):
        histogram(samples, "m", lambda _: True)


@given(st.text(st.characters(codec="utf-8"), max_size=80) | st.from_regex(r"m_bucket\{.*\} .*"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        buckets = histogram(parse(text, ["m"], "here"), "m", lambda _: True)
    except MeasurementError:
        return
    assert len(buckets.edges) == len(buckets.counts)
    assert buckets.n >= 0


@pytest.mark.parametrize("answer", [httpx2.Response(404), httpx2.ConnectError("nobody there")])
def test_no_answer_gives_no_measurement(answer: httpx2.Response | Exception) -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with (
        httpx2.Client(transport=httpx2.MockTransport(handle)) as client,
        raised(MeasurementError, "http://here/metrics"),
    ):
        scrape(client, "http://here/metrics", ["m"])


def test_an_answer_is_parsed() -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, text=TEXT))
    with httpx2.Client(transport=transport) as client:
        assert len(scrape(client, "http://here/metrics", ["served_ms"])) == 11


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_the_bounds_hold_as_often_as_they_claim(quantile: float) -> None:
    rng = random.Random(7)
    true = -math.log(1.0 - quantile)
    edges = (0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, math.inf)
    above = below = 0
    for _ in range(300):
        counts = [0] * len(edges)
        for _ in range(400):
            counts[bisect_left(edges, rng.expovariate(1.0))] += 1
        estimate = Histogram(edges, tuple(counts)).quantile(quantile)
        above += estimate.high >= true
        below += estimate.low <= true
    assert above >= 0.95 * 300
    assert below >= 0.95 * 300


BESIDE = """# TYPE queue gauge
queue 3
# TYPE queue_total counter
queue_total 1836
# TYPE sent counter
sent{code="200"} 40
sent_total 40
# TYPE fails counter
"""


def all_of(_: object) -> bool:
    return True


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE q gauge\n  q 3\n",
        '\ufeff# TYPE q gauge\nq{a="x # {y} z"} 3\n',
        '# TYPE q gauge\nq{a="1"} 3 # {trace="5"} 0.5 1.7e9\nq{a="1"} 3\n',
        '# TYPE "q" gauge\n{"q",a="1"} 3\n',
    ],
)
def test_a_text_is_read_as_prometheus_reads_it(text: str) -> None:
    assert gauge(parse(text, ["q"], "here"), "q", all_of) == 3.0
    assert declared(text, "gauge") == ["q"]


def test_a_name_in_quotes_may_have_other_characters() -> None:
    text = '# TYPE "http.requests" counter\n{"http.requests"} 3\n{"http.requests",x="y"} 4\n'
    samples = parse(text, ["http.requests"], "here")
    assert counter(samples, "http.requests", all_of) == 7.0
    assert declared(text, "counter") == ["http.requests"]


@pytest.mark.parametrize("twice", ["sent_total 4", 'served_bucket{le="1"} 4'])
def test_one_series_with_two_values_is_refused(twice: str) -> None:
    with raised(MeasurementError, twice.partition(" ")[0].partition("{")[0], "twice"):
        parse(f"{twice}\n{twice}5\n{twice}\n", ["sent", "served"], "here")


@pytest.mark.parametrize("values", [("+Inf", "-Inf"), ("NaN", "1"), ("1e308", "1.7e308")])
@pytest.mark.parametrize("read", [gauge, counter])
def test_series_without_a_sum_are_refused(
    values: tuple[str, str], read: Callable[..., float]
) -> None:
    text = "".join(f'x{{of="{n}"}} {value}\n' for n, value in enumerate(values))
    with raised(MeasurementError, "x is at"):
        read(parse(text, ["x"], "here"), "x", all_of)


def test_a_gauge_beside_a_counter_of_its_name_is_the_gauge_alone() -> None:
    """As `go_memstats_alloc_bytes` beside its `_total`: client_golang, issue 829."""
    samples = parse(BESIDE, ["queue"], "here")
    assert gauge(samples, "queue", all_of) == 3.0
    assert counter(samples, "queue", all_of) == 1836.0


@pytest.mark.parametrize("blank", [" ", "\t", "  "])
def test_a_counter_is_found_before_any_blank(blank: str) -> None:
    samples = parse(f"# TYPE n_total counter\nn_total{blank}5\n", ["n"], "here")
    assert counter(samples, "n", lambda labels: True) == 5.0


def test_a_counter_beside_its_total_is_counted_once() -> None:
    samples = parse(BESIDE, ["sent"], "here")
    assert counter(samples, "sent", all_of) == 40.0
    assert counter(parse(BESIDE, ["sent_total"], "here"), "sent_total", all_of) == 40.0


def test_a_missing_counter_is_not_zero() -> None:
    samples = parse(BESIDE, ["tokens"], "here")
    with pytest.raises(MeasurementError, match="here has no counter 'tokens'") as refused:
        counter(samples, "tokens", all_of)
    assert "queue_total" in (refused.value.hint or "")
    with pytest.raises(MeasurementError, match="here has no gauge 'queue_totals'"):
        gauge(parse(BESIDE, ["queue_total"], "here"), "queue_totals", all_of)


def test_a_declared_counter_without_a_series_yet_is_at_zero() -> None:
    assert counter(parse(BESIDE, ["fails"], "here"), "fails", all_of) == 0.0


UNTYPED = """# HELP work_seconds how long
work_seconds_bucket{path="a\u2028b",le="0.1"} 3 1700000000123
work_seconds_bucket{path="a\u2028b",le="+Inf"} 4 1700000000123
work_seconds_count 4
#  TYPE  sent\tuntyped
sent 40
#  TYPE  depth\tgauge
depth 2
"""


def test_metrics_without_a_type_are_what_they_can_be() -> None:
    """As of VictoriaMetrics/metrics, which declares no types, and of jmx_exporter."""
    assert declared(UNTYPED, "histogram") == ["work_seconds"]
    assert declared(UNTYPED, "counter") == ["work_seconds_count", "sent"]
    assert "depth" in declared(UNTYPED, "gauge") and "depth" not in declared(UNTYPED, "counter")
    samples = parse(UNTYPED, ["work_seconds", "sent"], "here")
    assert histogram(samples, "work_seconds", all_of).counts == (3, 1)
    assert counter(samples, "sent", all_of) == 40.0
