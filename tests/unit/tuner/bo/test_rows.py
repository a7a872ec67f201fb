from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import knob
from tuner.bo.rows import LEAST_PAY, LoadLevel, held_up_to, plan_of
from tuner.core import LOAD_REACH, Cost, Plan, Setting, SettingKey, Space, setting_key

BY = "arrival_rate_per_s"
SPACE = Space((knob("gpu.clock_mhz", (400, 600, 800, 1000), 1000),))
SLOW, MIDDLE, FAST, HOME = ({"gpu.clock_mhz": mhz} for mhz in (400, 600, 800, 1000))


def level(load: float, weight: float = 1.0, *costs: tuple[Setting, float]) -> LoadLevel:
    return LoadLevel(load, weight, {setting_key(setting): cost for setting, cost in costs})


def expected(plan: Plan, levels: list[LoadLevel]) -> float:
    """Return the expected cost of a plan; infinite if a row holds a setting that may not be held."""
    home = setting_key(SPACE.default)
    held = (setting_key(plan.rows[plan.row({BY: x.load})].setting) for x in levels)
    return math.fsum(x.weight * x.cost(s, home) for x, s in zip(levels, held, strict=True))


LEVELS: Any = st.lists(
    st.builds(
        lambda load, weight, costs: level(load, weight, *costs),
        st.floats(0.5, 500.0),
        st.floats(0.0, 10.0),
        st.lists(st.tuples(st.sampled_from([SLOW, MIDDLE, FAST]), st.floats(0.2, 1.3)), max_size=3),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda x: x.load,
)


@given(LEVELS)
def test_nothing_but_the_baseline_is_held_above_the_highest_load_that_was_measured(
    levels: list[LoadLevel],
) -> None:
    plan = plan_of(levels, BY, SPACE)
    highest = max(x.load for x in levels)
    for load in (highest * LOAD_REACH * (1.0 + 1e-9), 10.0 * highest):
        assert plan.rows[plan.row({BY: load})].setting == HOME
    assert plan.rows[plan.row({})].setting == HOME, "nor where the load is not known"


@given(LEVELS)
def test_no_row_is_held_at_a_load_where_its_setting_may_not_be(levels: list[LoadLevel]) -> None:
    assert expected(plan_of(levels, BY, SPACE), levels) < math.inf


@given(LEVELS)
def test_a_plan_is_never_worse_than_one_setting_by_its_own_estimates(
    levels: list[LoadLevel],
) -> None:
    home, total = setting_key(HOME), math.fsum(x.weight for x in levels)

    def alone(setting: SettingKey) -> float:
        return math.fsum(x.weight * min(x.cost(setting, home), 1e9) for x in levels)

    best = min(alone(setting_key(s)) for s in SPACE.grid())
    assert expected(plan_of(levels, BY, SPACE), levels) <= best + 1e-9 * max(1.0, total)


@given(LEVELS)
def test_each_row_but_the_baseline_says_at_which_load_it_is_to_be_confirmed(
    levels: list[LoadLevel],
) -> None:
    loads = {x.load for x in levels}
    for row in plan_of(levels, BY, SPACE).rows:
        assert row.setting == HOME or row.at in loads


def test_one_row_serves_loads_where_another_would_not_pay() -> None:
    little = 1.0 - LEAST_PAY / 2.0
    levels = [level(10.0, 1.0, (FAST, 0.8), (SLOW, 0.8 * little)), level(20.0, 1.0, (FAST, 0.9))]
    assert [r.setting for r in plan_of(levels, BY, SPACE).rows] == [FAST, HOME]


def test_a_row_that_pays_is_made_and_ends_between_the_loads() -> None:
    levels = [level(10.0, 1.0, (FAST, 0.8), (SLOW, 0.6)), level(11.0, 1.0, (FAST, 0.9))]
    slow, fast, home = plan_of(levels, BY, SPACE).rows
    assert (slow.setting, fast.setting, home.setting) == (SLOW, FAST, HOME)
    assert slow.below == pytest.approx(math.sqrt(110.0))
    assert fast.below == pytest.approx(11.0 * LOAD_REACH)


def test_a_change_that_takes_long_has_to_pay_more() -> None:
    slowly = knob("gpu.clock_mhz", (400, 600, 800, 1000), 1000, cost=Cost(seconds=60.0))
    levels = [level(10.0, 1.0, (FAST, 0.8), (SLOW, 0.6)), level(20.0, 1.0, (FAST, 0.9))]
    assert len(plan_of(levels, BY, SPACE).rows) == 3
    assert len(plan_of(levels, BY, Space((slowly,))).rows) == 2


def test_where_nothing_may_be_held_the_baseline_is_held_at_every_load() -> None:
    assert plan_of([level(10.0), level(20.0)], BY, SPACE) == Plan.single(HOME)


def test_one_setting_is_held_up_to_the_loads_that_its_windows_are_compared_with() -> None:
    plan = held_up_to(SLOW, 10.0, BY, SPACE)
    assert [row.setting for row in plan.rows] == [SLOW, HOME]
    assert plan.rows[0].below == pytest.approx(10.0 * LOAD_REACH) and plan.eager
