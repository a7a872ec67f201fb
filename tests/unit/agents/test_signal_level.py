from __future__ import annotations

import math

import pytest
from agents.demand import VOTES, LoadEstimator, Rent
from hypothesis import given
from hypothesis import strategies as st

from agents.side import Pulse


def fed(depths: list[float], estimator: LoadEstimator | None = None, at: float = 0.0) -> float:
    """Feed a second of each depth; return the time after it."""
    estimator = estimator or LoadEstimator()
    total = 0.0
    estimator.see(at, Pulse("a", 0, total))
    for depth in depths:
        at, total = at + 1.0, total + depth
        estimator.see(at, Pulse("a", 0, total))
    return at


DEPTHS = st.floats(0.0, 5000.0)


@given(depths=st.lists(DEPTHS, min_size=1, max_size=60))
def test_the_demand_is_a_power_of_two_that_was_asked_for(depths: list[float]) -> None:
    estimator = LoadEstimator()
    fed(depths, estimator)
    demand = estimator.demand
    assert demand is not None and demand & (demand - 1) == 0
    assert 1 <= demand <= max(1.0, 1.6 * max(depths))
    assert estimator.depth is not None
    assert min(depths) <= estimator.depth + 1e-6 and estimator.depth <= max(depths) + 1e-6


@given(depth=DEPTHS, before=st.lists(DEPTHS, max_size=20))
def test_a_steady_load_is_found_whatever_was_before(depth: float, before: list[float]) -> None:
    estimator = LoadEstimator()
    fed(before + [depth] * 40, estimator)
    assert estimator.demand is not None
    # Half a power up or down, and the hysteresis.
    assert estimator.demand <= max(1.0, 1.6 * depth)
    assert max(1.0, depth) < 1.6 * estimator.demand


@given(
    looks=st.lists(
        st.tuples(st.floats(-5.0, 60.0), st.floats(-10.0, 1e6), st.sampled_from(["a", "b"])),
        max_size=40,
    )
)
def test_no_sequence_of_looks_breaks_it(looks: list[tuple[float, float, str]]) -> None:
    estimator, now, total = LoadEstimator(), 0.0, 0.0
    for seconds, grown, incarnation in looks:
        now, total = now + seconds, max(0.0, total + grown)
        estimator.see(now, Pulse(incarnation, 0, total))
    assert estimator.demand is None or estimator.demand >= 1
    assert estimator.depth is None or (math.isfinite(estimator.depth) and estimator.depth >= 0.0)


def test_nothing_is_known_from_one_look() -> None:
    estimator = LoadEstimator()
    estimator.see(0.0, Pulse("a", 3, 7.0))
    assert estimator.demand is None


def test_no_arrivals_are_a_demand_of_one() -> None:
    estimator = LoadEstimator()
    at = fed([16.0] * 20, estimator)
    assert estimator.demand == 16
    for second in range(1, 40):
        estimator.see(at + second, Pulse("a", 0, 16.0 * 20))
    assert estimator.demand == 1
    assert estimator.depth is not None and estimator.depth < 1e-6


def test_more_demand_counts_at_once_and_less_by_the_majority() -> None:
    estimator = LoadEstimator()
    at = fed([1.0] * 20, estimator)
    demands, total = [], 20.0
    for depth in [16.0] * 3 + [1.0] * 20:
        at, total = at + 1.0, total + depth
        estimator.see(at, Pulse("a", 0, total))
        demands.append(estimator.demand)
    assert demands[:4] == [8, 8, 16, 16]
    down = demands.index(1)
    assert VOTES // 2 < down <= 3 + 2 * VOTES and set(demands[down:]) == {1}


@given(step_s=st.floats(0.05, 1.0))
def test_how_often_one_looks_does_not_change_how_slowly_it_falls(step_s: float) -> None:
    estimator, at, total = LoadEstimator(), 0.0, 0.0
    estimator.see(at, Pulse("a", 0, total))
    while at < 60.0:
        at, total = at + step_s, total + (16.0 if at < 20.0 else 0.0) * step_s
        estimator.see(at, Pulse("a", 0, total))
        if estimator.demand == 1:
            break
    # A vote takes a second and at most a step more.
    assert 20.0 + VOTES / 2 < at < 20.0 + (VOTES / 2 + 6.0) * (1.0 + step_s) + 1.0


def test_a_sudden_load_that_was_acted_on_is_the_demand() -> None:
    estimator = LoadEstimator()
    at = fed([1.0] * 20, estimator)
    estimator.see(at + 0.2, Pulse("a", 0, 20.0 + 0.2 * 40.0))
    assert estimator.latest == pytest.approx(40.0) and estimator.demand == 1
    estimator.rise()
    assert estimator.demand == 32
    estimator.see(at + 1.2, Pulse("a", 0, 28.0))
    assert estimator.demand == 32 and estimator.latest == 0.0


def test_what_happens_in_a_pause_or_across_a_restart_is_no_load_of_the_moment() -> None:
    estimator = LoadEstimator()
    at = fed([30.0] * 3, estimator)
    assert estimator.latest == 30.0
    estimator.pause()
    assert estimator.latest == 0.0
    estimator.see(at + 5.0, Pulse("a", 0, 1000.0))
    assert estimator.latest == 0.0
    estimator.see(at + 6.0, Pulse("b", 0, 2000.0))
    assert estimator.latest == 0.0


def test_a_load_at_a_bound_does_not_make_it_flap() -> None:
    estimator = LoadEstimator()
    seen = set()
    at, total = 0.0, 0.0
    estimator.see(at, Pulse("a", 0, total))
    for second in range(200):
        depth = 8.0 * math.sqrt(2.0) + (0.5 if second % 20 < 10 else -0.5)
        at, total = at + 1.0, total + depth
        estimator.see(at, Pulse("a", 0, total))
        if second > VOTES:
            seen.add(estimator.demand)
    assert len(seen) == 1


def test_a_workload_that_was_started_again_keeps_the_demand() -> None:
    estimator = LoadEstimator()
    at = fed([16.0] * 20, estimator)
    estimator.see(at + 1.0, Pulse("b", 0, 0.0))
    assert estimator.demand == 16
    estimator.see(at + 2.0, Pulse("b", 0, 16.0))
    assert estimator.demand == 16 and estimator.depth is not None and estimator.depth > 15.0


@given(gain=st.floats(0.05, 1.0), cost_s=st.floats(0.0, 60.0))
def test_a_change_is_due_once_staying_has_cost_as_much(gain: float, cost_s: float) -> None:
    rent, waited = Rent(), 0
    while not rent.due(float(waited), gain, cost_s):
        waited += 1
    assert gain * waited >= cost_s - 1e-6
    assert gain * (waited - 1) < cost_s + 1e-6


def test_what_gains_nothing_is_never_due_and_settling_forgets() -> None:
    rent = Rent()
    assert not any(rent.due(float(at), 0.0, 0.0) for at in range(100))
    assert not rent.due(100.0, 1.0, 5.0)
    rent.settle()
    assert not rent.due(110.0, 1.0, 5.0)
    assert rent.due(115.0, 1.0, 5.0)
    rent.settle(120.0)
    assert rent.due(125.0, 1.0, 5.0)
