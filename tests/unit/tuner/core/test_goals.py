"""Objectives, constraints and verdicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raised
from tuner.core import (
    LARGEST,
    Constraint,
    ConstraintSyntax,
    Estimate,
    InvalidInput,
    Limit,
    Objective,
    Verdict,
    judge,
    limits,
    refuse_contradiction,
    worst,
)

METRICS = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)


@given(
    METRICS,
    st.sampled_from(["<=", ">="]),
    st.floats(1e-6, 1e9, allow_nan=False),
    st.booleans(),
)
def test_a_constraint_reads_back_as_it_was_written(
    metric: str, op: str, bound: float, relative: bool
) -> None:
    constraint = Constraint(metric, op, bound, relative)
    assert Constraint.parse(str(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency_p99_ms <= 50", Constraint("latency_p99_ms", "<=", 50.0)),
        ("latency_p99_ms<=1.05x baseline", Constraint("latency_p99_ms", "<=", 1.05, True)),
        (" throughput_per_s >= .9 x baseline ", Constraint("throughput_per_s", ">=", 0.9, True)),
        ("power_w <= 2.5e2", Constraint("power_w", "<=", 250.0)),
    ],
)
def test_operators_texts_are_parsed(text: str, expected: Constraint) -> None:
    assert Constraint.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latency",
        "latency_p99_ms < 50",
        "latency_p99_ms <= fast",
        "latency_p99_ms <= -1",
        "latency_p99_ms <= 0",
        "latency_p99_ms <= nan",
        "latency_p99_ms <= 1e999",
        "latency_p99_ms <= 50 ms",
        "<= 50",
        "latency_p99_ms <= 1.2x base",
        "a <= 1; b <= 2",
    ],
)
def test_text_that_does_not_parse_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConstraintSyntax) as caught:
        Constraint.parse(text)
    assert caught.value.hint


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        constraint = Constraint.parse(text)
    except ConstraintSyntax:
        return
    assert constraint.bound > 0.0


def test_a_relative_limit_needs_its_baseline() -> None:
    constraint = Constraint.parse("latency_p99_ms <= 1.2x baseline")
    assert limits([constraint], {}) is None
    resolved = limits([constraint], {"latency_p99_ms": Estimate(10.0)})
    assert resolved is not None
    assert resolved[0].value == pytest.approx(12.0)


def test_no_limit_is_relative_to_zero() -> None:
    constraint = Constraint.parse("power_w <= 1.2x baseline")
    assert limits([constraint], {"power_w": Estimate(0.0)}) is None


@given(st.floats(1e-3, 1e6), st.sampled_from([-1.0, 1.0]), st.floats(0.1, 1.9))
def test_a_relative_limit_is_relaxed_by_its_share_of_either_sign(
    size: float, side: float, bound: float
) -> None:
    resolved = limits([Constraint("score", "<=", bound, True)], {"score": Estimate(side * size)})
    assert resolved is not None
    assert resolved[0].value - side * size == pytest.approx((bound - 1.0) * size, abs=1e-9 * size)


@pytest.mark.parametrize("text", ["loss <= -0.95", "score >= 0", "loss <= +1e-3", "drift <= -.5e2"])
def test_limits_below_zero_and_at_zero_are_read(text: str) -> None:
    constraint = Constraint.parse(text)
    assert Constraint.parse(str(constraint)) == constraint
    assert limits([constraint], {}) is not None


@pytest.mark.parametrize("text", ["loss <= 1e308x baseline", "loss <= 1.1e18", "loss >= -1e300"])
def test_a_limit_that_no_value_can_break_is_refused(text: str) -> None:
    with pytest.raises(ConstraintSyntax, match="no value exceeds it"):
        Constraint.parse(text)


@pytest.mark.parametrize("relative", [True, False])
def test_a_stored_limit_beyond_every_value_judges_as_kept(relative: bool) -> None:
    bound = Constraint("power_w", "<=", 1e308, relative)
    resolved = limits([bound], {"power_w": Estimate(200.0)})
    assert resolved is not None and resolved[0].value <= LARGEST
    assert judge({"power_w": Estimate.of_mean(1e17, 0.0)}, resolved) is Verdict.FEASIBLE


@pytest.mark.parametrize(
    ("op", "low", "high", "verdict"),
    [
        ("<=", 8.0, 9.9, Verdict.FEASIBLE),
        ("<=", 8.0, 10.1, Verdict.UNSURE),
        ("<=", 10.1, 12.0, Verdict.INFEASIBLE),
        (">=", 10.1, 12.0, Verdict.FEASIBLE),
        (">=", 8.0, 10.1, Verdict.UNSURE),
        (">=", 8.0, 9.9, Verdict.INFEASIBLE),
    ],
)
def test_the_whole_interval_decides(op: str, low: float, high: float, verdict: Verdict) -> None:
    estimate = Estimate((low + high) / 2, 0.1, 300, low, high)
    assert Limit("m", op, 10.0).verdict(estimate) is verdict


def test_an_unmeasured_metric_is_unsure() -> None:
    assert judge({}, [Limit("m", "<=", 10.0)]) is Verdict.UNSURE


def test_the_least_favourable_verdict_decides() -> None:
    assert worst([Verdict.FEASIBLE, Verdict.UNSURE]) is Verdict.UNSURE
    assert worst([Verdict.INFEASIBLE, Verdict.UNSURE]) is Verdict.INFEASIBLE
    assert worst([]) is Verdict.FEASIBLE


def test_an_objective_knows_its_direction() -> None:
    assert Objective("energy_j").better(1.0, 2.0)
    assert Objective("throughput_per_s", "maximize").better(2.0, 1.0)
    with pytest.raises(ConstraintSyntax):
        Objective("energy_j", "shrink")
    with pytest.raises(ConstraintSyntax):
        Objective("Energy J")


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("energy_j", "minimize"),
        ("latency_p95_ms", "minimize"),
        ("throughput_per_s", "maximize"),
        ("maximize throughput_per_s", "maximize"),
        ("maximise throughput_per_s", "maximize"),
        ("minimise energy_j", "minimize"),
        (" minimize   joy ", "minimize"),
        ("maximise joy", "maximize"),
    ],
)
def test_a_metric_is_made_better_the_way_it_is_better(text: str, goal: str) -> None:
    read = Objective.parse(text)
    assert (read.goal, read.metric) == (goal, text.split()[-1])


@pytest.mark.parametrize("metric", ["joy", "arrival_rate_per_s"])
def test_a_metric_without_a_better_direction_must_be_given_one(metric: str) -> None:
    with pytest.raises(ConstraintSyntax) as caught:
        Objective.parse(metric)
    assert f'"minimize {metric}" or "maximize {metric}"' in caught.value.hint


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("minimize throughput_per_s", '"maximize throughput_per_s"'),
        ("maximise energy_j", '"minimize energy_j"'),
    ],
)
def test_the_worse_direction_is_never_requested(text: str, instead: str) -> None:
    with raised(ConstraintSyntax) as caught:
        Objective.parse(text)
    assert instead in caught.value.hint


@pytest.mark.parametrize("text", ["shrink energy_j", "minimize Energy", "", "minimize", "a b c"])
def test_an_objective_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(ConstraintSyntax):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (("m >= 10", "m <= 5"), '"m >= 10.0" and "m <= 5.0"'),
        (("m <= 0.9x baseline", "n <= 1", "m >= 0.95x baseline"), "0.95x baseline"),
    ],
)
def test_constraints_that_leave_no_value_are_refused(texts: tuple[str, ...], named: str) -> None:
    with raised(InvalidInput) as caught:
        refuse_contradiction([Constraint.parse(text) for text in texts])
    assert named in caught.value.message


@pytest.mark.parametrize(
    "texts",
    [
        ("m >= 5", "m <= 10"),
        ("m <= 5", "m <= 5", "m <= 7"),
        ("m >= 10", "n <= 5"),
        ("m >= 10", "m <= 1.2x baseline"),
    ],
)
def test_constraints_that_allow_a_value_are_accepted(texts: tuple[str, ...]) -> None:
    refuse_contradiction([Constraint.parse(text) for text in texts])


def test_an_objective_scores_measured_estimated_and_true_values() -> None:
    shown = {"energy_j": Estimate(7.0, 0.1), "power_w": Estimate(50.0)}
    assert Objective("energy_j").score(shown) == shown["energy_j"]
    assert Objective("energy_j").score({"energy_j": 7.0}, {"price": 0.3}) == 7.0
    assert Objective("energy_j").score({"power_w": 50.0}) is None
