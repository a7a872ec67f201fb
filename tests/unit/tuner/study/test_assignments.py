"""The duration of windows at a low rate of requests."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest

from tests.builders import trial
from tests.unit.tuner.bo.served import BY, SPACE, asked, shown
from tuner.core import Load, Phase, Plan, Row, Terms, Trial, TrialState
from tuner.study.assignments import OBSERVE_S, held_window_s, longest_window_s

ONE = Plan.single(asked().baseline)


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


def counted(requests: int, seconds: float) -> Trial:
    whole = window(max(1, requests), seconds)
    assert whole.measurement is not None
    return replace(whole, measurement=replace(whole.measurement, load=Load(completed=requests)))


def requests_in(rng: random.Random, seconds: float, per_minute: float) -> int:
    at, count = rng.expovariate(per_minute / 60.0), 0
    while at < seconds:
        at, count = at + rng.expovariate(per_minute / 60.0), count + 1
    return count


@pytest.mark.parametrize("per_minute", [1.0, 3.0, 10.0, 60.0, 600.0])
def test_an_unchanged_power_saves_nothing_at_any_rate(per_minute: float) -> None:
    rng = random.Random(1)
    trials = [counted(n, 60.0) for _ in range(9) if (n := requests_in(rng, 60.0, per_minute))]
    length = held_window_s(asked(), trials, ONE)

    def seconds_an_item(seconds: float) -> float:
        """Return the time, and so the energy, of an item by the windows that have one."""
        windows = [requests_in(rng, seconds, per_minute) for _ in range(2000)]
        return seconds * sum(n > 0 for n in windows) / sum(windows)

    assert seconds_an_item(length) == pytest.approx(seconds_an_item(60.0), rel=0.1)


def test_a_held_window_is_short_where_many_items_arrive_or_none_are_counted() -> None:
    assert held_window_s(asked(), [counted(1000, 60.0), counted(0, 60.0)], ONE) == 10.0
    assert held_window_s(asked(), [replace(counted(5, 60.0), phase=Phase.HOLDING)], ONE) == 10.0
    long = replace(asked(), terms=Terms(max_window_s=30.0))
    assert held_window_s(long, [counted(5, 31.0)], ONE) == 30.0, (
        "a trial's window is a little longer"
    )
    assert held_window_s(long, [replace(counted(5, 31.0), setting={})], ONE) == 10.0, "another's"


def test_within_a_held_window_neither_a_stop_nor_a_row_waits_for_long() -> None:
    hourly = replace(asked(), terms=Terms(max_window_s=3600.0))
    assert held_window_s(hourly, [counted(5, 3600.0)], ONE) == OBSERVE_S
    rare = replace(asked(), terms=Terms(window_s=300.0, max_window_s=3600.0))
    assert held_window_s(rare, [counted(5, 3600.0)], ONE) == 300.0, "as the operator asked"
    rows = Plan((Row(2.0, asked().baseline), Row(inf, ONE.rows[0].setting)), BY)
    assert held_window_s(asked(), [counted(5, 60.0)], rows) == 10.0
