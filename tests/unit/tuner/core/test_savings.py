"""The cost of a saving in capacity and latency, as text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.core import (
    Constraint,
    Estimate,
    Objective,
    capacity_beside,
    capacity_lost,
    improvement,
    slower_by,
)


def at(throughput: float) -> dict[str, Estimate]:
    return {"throughput_per_s": Estimate.of_mean(throughput, 0.1)}


def offered(clause: str) -> Constraint:
    """Return the constraint that a clause recommends."""
    match = re.search('the constraint "(.*)"', clause)
    assert match is not None
    return Constraint.parse(match[1])


def test_a_loss_of_capacity_is_reported_with_the_constraint_against_it() -> None:
    clause = capacity_lost(at(53.6), at(24.8), ["energy_j", "latency_p99_ms"])
    assert "throughput_per_s is 53.7 % lower" in clause
    assert offered(clause) == Constraint.parse("throughput_per_s >= 0.95x baseline")


def test_an_allowed_loss_is_reported_without_a_further_constraint() -> None:
    clause = capacity_lost(at(50.0), at(40.0), ["energy_j", "throughput_per_s"])
    assert clause == "throughput_per_s is 20.0 % lower, as its constraint allows"


@pytest.mark.parametrize("after", [47.6, 50.0, 60.0])
def test_a_cost_of_a_twentieth_is_not_a_loss(after: float) -> None:
    assert capacity_lost(at(50.0), at(after), []) == ""


def tail(latency: float, cpu_time: float = 1.0) -> dict[str, Estimate]:
    return {
        "latency_ms": Estimate.of_mean(latency / 2.0, 0.1),
        "latency_p99_ms": Estimate.of_mean(latency, 0.1),
        "cpu_time_ms": Estimate.of_mean(cpu_time, 0.1),
    }


def test_growth_of_an_unlimited_latency_is_reported_with_the_constraint_against_it() -> None:
    clause = slower_by(
        tail(10.0), {**tail(26.0), "latency_ms": Estimate.of_mean(6.0, 0.1)}, ["energy_j"]
    )
    assert "latency_p99_ms is 160.0 % higher" in clause
    assert offered(clause) == Constraint.parse("latency_p99_ms <= 1.05x baseline")


@pytest.mark.parametrize(
    ("after", "metrics"),
    [
        (tail(26.0), ["energy_j", "latency_ms"]),
        (tail(10.4), ["energy_j"]),
        (tail(10.0, cpu_time=9.0), ["energy_j"]),
        ({}, ["energy_j"]),
    ],
)
def test_growth_of_a_limited_latency_or_a_small_one_is_not_reported(
    after: dict[str, Estimate], metrics: list[str]
) -> None:
    assert slower_by(tail(10.0), after, metrics) == ""


@pytest.mark.parametrize(
    ("after", "clause"),
    [
        (49.0, "throughput_per_s is 2.0 % lower"),
        (51.0, "throughput_per_s is 2.0 % higher"),
        (50.001, "throughput_per_s is unchanged"),
    ],
)
def test_capacity_is_shown_beside_every_saving(after: float, clause: str) -> None:
    assert capacity_beside(at(50.0), at(after), []) == clause
    assert capacity_beside(at(50.0), {}, []) == "throughput_per_s was not measured"


VALUES = st.floats(-1e99, 1e99, allow_subnormal=False) | st.sampled_from([0.0, 1e-300, -1e-300])
DOUBTS = st.floats(0.0, 1e98)


@given(VALUES, VALUES, DOUBTS, DOUBTS, st.sampled_from(["minimize", "maximize"]))
@example(-1.0, -0.5, 0.0, 0.0, "minimize")  # Ax issue 1685: a status quo below zero
@example(0.0, 5.0, 0.0, 0.0, "minimize")
@example(1e-300, 1e99, 0.0, 0.0, "minimize")
def test_an_improvement_is_above_zero_exactly_where_the_objective_is_better(
    before: float, after: float, doubt: float, other_doubt: float, goal: str
) -> None:
    objective = Objective("score", goal)
    gain = improvement(
        Estimate.of_mean(before, doubt), Estimate.of_mean(after, other_doubt), objective.sign
    )
    shown = gain.amount.mean
    assert math.isfinite(shown) and math.isfinite(gain.amount.stderr)
    assert (shown > 0.0) == (objective.better(after, before) and shown != 0.0)
    assert (shown < 0.0) == (objective.better(before, after) and shown != 0.0)
    if abs(before - after) > 1e-9 * abs(before):
        assert shown != 0.0
    if before <= 0.0 or after < 0.0:
        assert not gain.relative
        assert shown == objective.sign * (before - after)


@given(st.floats(1e-6, 1e6), st.floats(0.0, 1e6), st.floats(1e-3, 1e3))
def test_a_share_is_the_same_in_any_unit(before: float, after: float, unit: float) -> None:
    here = improvement(Estimate.of_mean(before, 0.1), Estimate.of_mean(after, 0.1)).share
    there = improvement(
        Estimate.of_mean(unit * before, unit * 0.1), Estimate.of_mean(unit * after, unit * 0.1)
    ).share
    assert here is not None and there is not None
    assert there.mean == pytest.approx(here.mean, rel=1e-9, abs=1e-9)
    assert there.stderr == pytest.approx(here.stderr)
