from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.holding.signal_level import VOTES, SignalLevel, SwitchingCost
from agents.target.side import SignalSample
from tests.builders import setting
from tuner.core import Plan, Row

BOUNDS = [1.5 * 2.0**k for k in range(14)]
PLAN = Plan(
    tuple(Row(below, setting(600 + k)) for k, below in enumerate([*BOUNDS, math.inf])),
    "requests_in_system",
)
"""A row for each power of two, as Packrat's."""


def bounds(row: int) -> tuple[float, float]:
    """Return the levels between which a row is kept, with hysteresis."""
    low = BOUNDS[row - 1] * 0.9 if row else 0.0
    return low, 1.1 * (BOUNDS[row] if row < len(BOUNDS) else math.inf)


def fed(depths: list[float], level: SignalLevel | None = None, at: float = 0.0) -> float:
    """Feed one second at each depth; return the time after the last."""
    level = level or SignalLevel(PLAN)
    total = 0.0
    level.see(at, SignalSample(None, total, "a"))
    for depth in depths:
        at, total = at + 1.0, total + depth
        level.see(at, SignalSample(None, total, "a"))
    return at


DEPTHS = st.floats(0.0, 5000.0)


@given(depths=st.lists(DEPTHS, min_size=1, max_size=60))
def test_the_row_is_a_requested_one(depths: list[float]) -> None:
    level = SignalLevel(PLAN)
    fed(depths, level)
    assert level.row is not None and bounds(level.row)[0] <= max(depths)
    assert level.smoothed is not None
    assert min(depths) <= level.smoothed + 1e-6 and level.smoothed <= max(depths) + 1e-6


@given(depth=DEPTHS, before=st.lists(DEPTHS, max_size=20))
def test_a_steady_load_is_found_after_any_earlier_load(depth: float, before: list[float]) -> None:
    level = SignalLevel(PLAN)
    fed(before + [depth] * 60, level)
    assert level.row is not None
    low, high = bounds(level.row)
    assert low * 0.999 <= depth <= high * 1.001


@given(
    looks=st.lists(
        st.tuples(st.floats(-5.0, 60.0), st.floats(-10.0, 1e6), st.sampled_from(["a", "b"])),
        max_size=40,
    )
)
def test_any_sequence_of_readings_leaves_a_valid_row(looks: list[tuple[float, float, str]]) -> None:
    level, now, total = SignalLevel(PLAN), 0.0, 0.0
    for seconds, grown, incarnation in looks:
        now, total = now + seconds, max(0.0, total + grown)
        level.see(now, SignalSample(None, total, incarnation))
    assert level.row is None or 0 <= level.row <= len(BOUNDS)
    assert level.smoothed is None or (math.isfinite(level.smoothed) and level.smoothed >= 0.0)


@pytest.mark.parametrize("present", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_a_number_changes_nothing(present: float) -> None:
    level = SignalLevel(PLAN)
    level.see(0.0, SignalSample(20.0))
    level.see(1.0, SignalSample(20.0))
    level.see(2.0, SignalSample(present))
    assert level.smoothed == 20.0 and level.row == PLAN.row({PLAN.by: 20.0})
    level.see(3.0, SignalSample(present, 0.0, "a"))
    level.see(4.0, SignalSample(present, 30.0, "a"))
    assert level.present == 30.0


def test_nothing_is_known_from_one_look() -> None:
    level = SignalLevel(PLAN)
    level.see(0.0, SignalSample(None, 7.0, "a"))
    assert level.row is None


def test_without_arrivals_the_first_row_is_chosen() -> None:
    level = SignalLevel(PLAN)
    at = fed([16.0] * 20, level)
    assert level.row == 4
    for second in range(1, 40):
        level.see(at + second, SignalSample(None, 16.0 * 20, "a"))
    assert level.row == 0
    assert level.smoothed is not None and level.smoothed < 1e-6


def test_a_higher_level_counts_at_once_and_a_lower_one_by_the_majority() -> None:
    level = SignalLevel(PLAN)
    at = fed([1.0] * 20, level)
    rows, total = [], 20.0
    for depth in [16.0] * 3 + [1.0] * 20:
        at, total = at + 1.0, total + depth
        level.see(at, SignalSample(None, total, "a"))
        rows.append(level.row)
    assert rows[:3] == [3, 3, 3] and max(row for row in rows if row is not None) == 3
    down = rows.index(0)
    assert VOTES // 2 < down <= 3 + 2 * VOTES and set(rows[down:]) == {0}


@given(step_s=st.floats(0.05, 1.0))
def test_the_interval_of_readings_does_not_change_the_rate_of_decay(step_s: float) -> None:
    level, at, total = SignalLevel(PLAN), 0.0, 0.0
    level.see(at, SignalSample(None, total, "a"))
    while at < 60.0:
        at, total = at + step_s, total + (16.0 if at < 20.0 else 0.0) * step_s
        level.see(at, SignalSample(None, total, "a"))
        if level.row == 0:
            break
    # A vote takes a second and at most a step more.
    assert 20.0 + VOTES / 2 < at < 20.0 + (VOTES / 2 + 6.0) * (1.0 + step_s) + 1.0


def test_a_sudden_load_that_was_acted_on_is_the_level() -> None:
    level = SignalLevel(PLAN)
    at = fed([1.0] * 20, level)
    level.see(at + 0.2, SignalSample(None, 20.0 + 0.2 * 40.0, "a"))
    assert level.latest == pytest.approx(40.0) and level.row == 0
    level.rise()
    assert level.row == 5
    level.see(at + 1.2, SignalSample(None, 28.0, "a"))
    assert level.row == 5 and level.latest == 0.0


def test_pauses_and_restarts_do_not_count_as_the_present_load() -> None:
    level = SignalLevel(PLAN)
    at = fed([30.0] * 3, level)
    assert level.latest == 30.0
    level.pause()
    assert level.latest == 0.0
    level.see(at + 5.0, SignalSample(None, 1000.0, "a"))
    assert level.latest == 0.0
    level.see(at + 6.0, SignalSample(None, 2000.0, "b"))
    assert level.latest == 0.0


def test_a_load_at_a_bound_does_not_make_it_flap() -> None:
    level = SignalLevel(PLAN)
    seen = set()
    at, total = 0.0, 0.0
    level.see(at, SignalSample(None, total, "a"))
    for second in range(200):
        depth = 12.0 + (0.5 if second % 20 < 10 else -0.5)
        at, total = at + 1.0, total + depth
        level.see(at, SignalSample(None, total, "a"))
        if second > VOTES:
            seen.add(level.row)
    assert len(seen) == 1


def test_a_workload_that_was_started_again_keeps_its_row() -> None:
    level = SignalLevel(PLAN)
    at = fed([16.0] * 20, level)
    level.see(at + 1.0, SignalSample(None, 0.0, "b"))
    assert level.row == 4
    level.see(at + 2.0, SignalSample(None, 16.0, "b"))
    assert level.row == 4 and level.smoothed is not None and level.smoothed > 15.0


@given(gain=st.floats(0.05, 1.0), cost_s=st.floats(0.0, 60.0))
def test_a_change_is_due_once_staying_has_cost_as_much_as_it(gain: float, cost_s: float) -> None:
    cost, waited = SwitchingCost(), 0
    while not cost.due(float(waited), gain, cost_s):
        waited += 1
    assert gain * waited >= cost_s - 1e-6
    assert gain * (waited - 1) < cost_s + 1e-6


def test_a_change_without_a_gain_is_never_due_and_settling_resets() -> None:
    cost = SwitchingCost()
    assert not any(cost.due(float(at), 0.0, 0.0) for at in range(100))
    assert not cost.due(100.0, 1.0, 5.0)
    cost.settle()
    assert not cost.due(110.0, 1.0, 5.0)
    assert cost.due(115.0, 1.0, 5.0)
    cost.settle(120.0)
    assert cost.due(125.0, 1.0, 5.0)


def eager(*edges: float) -> Plan:
    rows = tuple(Row(below, {"k": n}) for n, below in enumerate((*edges, math.inf)))
    return Plan(rows, "arrival_rate_per_s", eager=True)


def arrived(level: SignalLevel, rates: Sequence[float], start: int = 0) -> list[int | None]:
    """Feed a level one count of arrivals per second; return the rows that it requests."""
    total, rows = 0.0, []
    for second, rate in enumerate([0.0, *rates], start=start):
        total += rate
        level.see(float(second), SignalSample(None, total))
        rows.append(level.row)
    return rows[1:]


def test_an_eager_plan_steps_up_within_a_second_of_a_spike() -> None:
    level = SignalLevel(eager(10.6), rate=True)
    rows = arrived(level, [10.0] * 30 + [40.0])
    assert rows[-2:] == [0, 1]


def test_the_noise_of_a_count_changes_no_row_of_an_eager_plan() -> None:
    chance, level = random.Random(1), SignalLevel(eager(10.6), rate=True)
    counts = [float(sum(chance.random() < 0.01 for _ in range(1000))) for _ in range(600)]
    rows = arrived(level, [10.0] * 20 + counts)
    assert rows.count(0) > 0.8 * len(rows)


def test_an_eager_plan_sees_a_load_that_grows_little_by_little() -> None:
    level = SignalLevel(eager(10.6), rate=True)
    rows = arrived(level, [10.0] * 30 + [10.0 + 0.1 * n for n in range(60)])
    assert rows[29] == 0 and rows[-1] == 1


def test_an_eager_plan_steps_down_once_it_is_earned() -> None:
    level = SignalLevel(eager(10.6), rate=True)
    rows = arrived(level, [10.0] * 30 + [40.0] * 5 + [9.0] * 60)
    down = rows.index(0, 31)
    assert 5 + 30 < down < 30 + 5 + 50


def poisson(chance: random.Random, rate: float, seconds: int) -> list[float]:
    """Return the number of arrivals in each second."""
    arrivals, at = [0.0] * seconds, chance.expovariate(rate)
    while at < seconds:
        arrivals[int(at)] += 1.0
        at += chance.expovariate(rate)
    return arrivals


def test_an_eager_plan_sees_a_load_that_stays_a_little_above_its_row() -> None:
    chance, level = random.Random(2), SignalLevel(eager(2.6), rate=True)
    at = fed(poisson(chance, 1.5, 120), level)
    assert level.row == 0
    fed(poisson(chance, 3.3, 180), level, at)
    assert level.row == 1, "ten seconds of 3.3 a second are no proof of more than 2.6"


def test_an_eager_plan_soon_forgets_a_burst() -> None:
    level = SignalLevel(eager(4.0), rate=True)
    at = fed([2.0] * 60 + [9.0] * 40, level)
    assert level.row == 1
    fed([2.0] * 40, level, at)
    assert level.row == 0
