"""A limit as a gauge: the value, its bound, the limit, and whether it is kept."""

from __future__ import annotations

from tests.unit.tuner.cli.worlds import created, held, operations
from tuner.core import Limit
from tuner.web.gauges import gauge


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
