"""The longest duration of a window at a low rate of requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import trial
from tests.unit.tuner.bo.served import BY, SPACE, asked, shown
from tuner.core import Terms, Trial, TrialState
from tuner.study.assignments import longest_window_s


def window(requests: int, seconds: float, state: TrialState = TrialState.COMPLETED) -> Trial:
    seen = shown(SPACE.default, 20.0)
    tail = replace(seen.estimates["latency_p99_ms"], n=requests)
    seen = replace(seen, seconds=seconds, estimates={**seen.estimates, "latency_p99_ms": tail})
    return trial(1, SPACE.default, seen, state=state)


@pytest.mark.parametrize(
    ("requests", "seconds", "longest_s"),
    [(700, 60.0, 60.0), (100, 60.0, 1.2 * 299 * 0.6), (299, 200.0, 240.0), (1, 60.0, 600.0)],
)
def test_windows_are_longer_where_few_requests_arrive(
    requests: int, seconds: float, longest_s: float
) -> None:
    seen = window(requests, seconds, TrialState.INCONCLUSIVE)
    assert longest_window_s(asked(), [seen]) == pytest.approx(longest_s)
    assert longest_window_s(asked(), []) == 60.0


def test_a_moving_load_may_be_low_again() -> None:
    low, high = window(100, 60.0), window(900, 60.0)
    assert longest_window_s(asked(), [low, high, high, high]) == pytest.approx(1.2 * 299 * 0.6)
    assert longest_window_s(asked(), [low, high, high, high, high]) == 60.0


def test_a_longest_window_that_was_given_is_kept() -> None:
    few = [window(100, 60.0)]
    given = replace(asked(), terms=Terms(max_window_s=50.0, plan_by=BY))
    assert longest_window_s(given, few) == 50.0
    assert longest_window_s(replace(asked(), terms=Terms()), few) == 60.0, "it follows no load"
