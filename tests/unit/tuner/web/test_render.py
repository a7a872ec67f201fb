"""Gauges and sparklines in SVG."""

from __future__ import annotations

import re

from tests.unit.tuner.cli.worlds import created, held, operations
from tuner.core import Limit
from tuner.web.render import HEIGHT, gauge, sparkline


def test_the_held_value_its_bound_and_the_verdict_are_in_words_too() -> None:
    verbs, study = held()
    view = verbs.study(study)
    (limit,) = view.limits
    text = gauge(view, limit)
    assert "110.0 ms" in text and "limit &lt;= 120.0 ms" in text and ">kept<" in text
    assert 'class="gauge feasible"' in text and "style=" not in text
    broken = gauge(view, Limit("latency_p99_ms", "<=", 50.0))
    assert 'class="gauge infeasible"' in broken and ">broken<" in broken


def test_a_study_without_measurements_is_reported() -> None:
    verbs = operations()
    view = verbs.study(created(verbs))
    assert "not measured yet" in gauge(view, Limit("latency_p99_ms", "<=", 50.0))


def point(minute: int, value: float) -> tuple[float, float]:
    return 60.0 * minute, value


def heights(svg: str) -> list[float]:
    (points,) = re.findall(r'<polyline points="([^"]*)"', svg)
    return [float(pair.split(",")[1]) for pair in points.split()]


def test_the_label_has_the_last_value_and_the_limit() -> None:
    limit = Limit("latency_p99_ms", "<=", 120.0)
    svg = sparkline("latency_p99_ms", [point(0, 90.0), point(1, 95.0)], limit)
    assert 'aria-label="latency_p99_ms: last 95.00 ms, limit &lt;= 120.0 ms"' in svg
    assert 'class="bound"' in svg and "broken" not in svg and "style=" not in svg


def test_a_last_value_over_the_limit_is_marked() -> None:
    limit = Limit("latency_p99_ms", "<=", 80.0)
    assert 'class="spark broken"' in sparkline("latency_p99_ms", [point(0, 90.0)], limit)


def test_noise_of_a_percent_stays_flat_and_a_step_does_not() -> None:
    calm = heights(sparkline("latency_p99_ms", [point(0, 100.0), point(1, 101.0)]))
    assert abs(calm[0] - calm[1]) < 0.1 * HEIGHT
    step = heights(sparkline("latency_p99_ms", [point(0, 100.0), point(1, 200.0)]))
    assert step[0] - step[1] > 0.8 * HEIGHT


def test_a_chart_without_points_is_empty() -> None:
    assert sparkline("latency_p99_ms", []) == ""
