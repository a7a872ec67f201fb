"""A caller within the rate is never refused; one above it gets the time of its next attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Time
from tuner.service.http import sessions
from tuner.service.http.sessions import RateLimit


def test_a_burst_is_let_in_and_then_the_rate() -> None:
    time = Time()
    limit = RateLimit(2.0, 3.0, time.monotonic)
    assert [limit.take("ann") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.take("bob") == 0.0
    time.sleep(0.5)
    assert (limit.take("ann"), limit.take("ann")) == (0.0, 0.5)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60))
def test_a_caller_on_time_is_admitted_and_none_gets_more(pauses: list[float]) -> None:
    time = Time()
    limit = RateLimit(2.0, 3.0, time.monotonic)
    began = time.monotonic()
    for let_in, pause in enumerate(pauses, 1):
        time.sleep(pause)
        again_s = limit.take("ann")
        if again_s:
            assert limit.take("ann") == pytest.approx(again_s), "who is refused is not counted"
            time.sleep(again_s + 1e-6)
            assert limit.take("ann") == 0.0
        assert let_in <= 3.0 + 2.0 * (time.monotonic() - began) + 1e-6


def test_the_longest_idle_caller_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_CALLERS", 2)
    limit = RateLimit(0.001, 1.0, Time().monotonic)
    assert limit.take("a") == limit.take("b") == 0.0
    assert limit.take("a") > 0.0
    assert limit.take("c") == 0.0
    assert limit.take("a") > 0.0, "b was the oldest"
    assert limit.take("b") == 0.0
