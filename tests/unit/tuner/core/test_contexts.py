"""Loads: their comparison, and the results of trials at each."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import past, setting, study, trial, window
from tuner.core import (
    Context,
    InvalidInput,
    MeasurementError,
    Phase,
    Plan,
    Row,
    Trial,
    Try,
    Verdict,
    comparable,
    is_at,
    unlike,
    weigh,
)

CONTEXTS = st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9), max_size=3)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ({"rate": 50.0}, {"rate": 60.0}, None),
        ({"rate": 50.0}, {"rate": 70.0}, "rate"),
        ({"rate": 50.0}, {"inside": 4}, None),
        ({"rate": 50.0, "inside": 4}, {"rate": 50.0, "inside": 8}, "inside"),
        ({"rate": 0.0}, {"rate": 0.0}, None),
        ({"rate": 0.0}, {"rate": 1.0}, "rate"),
        ({"price": -0.1}, {"price": 0.1}, "price"),
        ({}, {"rate": 1.0}, None),
        ({"rate": 5.0, "rate_peak": 9.0}, {"rate": 5.0, "rate_peak": 1.0}, None),
    ],
)
def test_common_numbers_of_both_must_be_equal(
    one: Context, other: Context, differs: str | None
) -> None:
    assert unlike(one, other) == differs


@given(CONTEXTS, CONTEXTS)
def test_comparing_goes_both_ways(one: Context, other: Context) -> None:
    assert comparable(one, one)
    assert comparable(one, other) is comparable(other, one)


@given(CONTEXTS, CONTEXTS)
def test_additional_loads_match_and_missing_ones_do_not(more: Context, at: Context) -> None:
    assert is_at({**more, **at}, at)
    for name in at:
        assert not is_at({n: v for n, v in {**more, **at}.items() if n != name}, at)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_load_is_finite(value: float) -> None:
    with pytest.raises(MeasurementError, match="requests_in_system"):
        window(context={"requests_in_system": value})
    with pytest.raises(InvalidInput, match="requests_in_system"):
        Try(setting(), "", context={"requests_in_system": value})


def at_load(
    number: int, clock: int, load: int, latency_ms: float = 100.0, *, reported: bool = True
) -> Trial:
    """Return a window at a requested load, which the agent reports or not."""
    context = {"requests_in_system": load}
    seen = window(clock / 100, latency_ms, context=context if reported else {})
    return trial(number, setting(clock), seen, context=context)


BASE = [trial(n, setting(), window(10.0, 100.0), phase=Phase.BASELINE) for n in (1, 2)]
EIGHT = {"requests_in_system": 8}


def test_evidence_of_another_load_is_there_by_its_load() -> None:
    seen = past(study(), [*BASE, at_load(3, 1000, 8, 300.0), at_load(4, 600, 8, 350.0)])
    assert [c.setting for c in seen.evidence.candidates] == [setting()]
    there = seen.at(EIGHT)
    assert there.baseline["latency_p99_ms"].mean == pytest.approx(300.0)
    candidate = there.of(setting(600))
    assert candidate is not None and candidate.verdict is Verdict.FEASIBLE
    assert seen.at(EIGHT) is there, "it is worked out once"
    assert seen.at({}) is seen.evidence


def test_an_old_rate_is_there_by_its_rate() -> None:
    night = trial(1, setting(), window(10.0, 40.0, rate=10.0), phase=Phase.BASELINE)
    tried = trial(2, setting(600), window(6.0, 45.0, rate=11.0))
    day = trial(3, setting(), window(10.0, 100.0, rate=50.0), phase=Phase.BASELINE)
    seen = past(study(), [night, tried, day])
    assert seen.evidence.of(setting(600)) is None
    assert seen.at({"arrival_rate_per_s": 10.0}).of(setting(600)) is not None


@pytest.mark.parametrize("reported", [True, False])
def test_windows_at_a_requested_load_never_set_the_limits(reported: bool) -> None:
    requested = [
        at_load(3, 1000, 8, 300.0, reported=reported),
        at_load(4, 600, 8, 350.0, reported=reported),
    ]
    assert weigh(study(), [*BASE, *requested]) == weigh(study(), BASE)


def test_windows_that_requested_the_present_load_count_with_it() -> None:
    usual = window(10.0, 100.0, context={"requests_in_system": 4})
    seen = weigh(study(), [trial(1, setting(), usual), at_load(2, 600, 4), at_load(3, 800, 8)])
    assert [c.setting for c in seen.candidates] == [setting(), setting(600)]


def test_windows_of_an_unknown_load_have_none() -> None:
    dark = trial(1, setting(), window(context={}), phase=Phase.BASELINE)
    assert weigh(study(), [dark], EIGHT).baseline == {}


def test_a_row_rests_on_its_load_where_the_baseline_is_known_there() -> None:
    plan = Plan(
        (Row(6.0, setting(800), at=4.0), Row(math.inf, setting(600), at=8.0)), "requests_in_system"
    )
    seen = past(study(), [*BASE, at_load(3, 1000, 8, 300.0), at_load(4, 800, 4)])
    assert seen.behind(plan, plan.rows[0]) is seen.evidence
    assert seen.behind(plan, plan.rows[1]) is seen.at(EIGHT)
    assert plan.context(plan.rows[1]) == EIGHT


@pytest.mark.parametrize("at", [2.0, 6.0, math.inf, math.nan])
def test_a_row_is_decided_at_its_own_load(at: float) -> None:
    rows = (Row(3.0, setting(), at=1.0), Row(6.0, setting(600), at=at), Row(math.inf, setting(800)))
    with pytest.raises(InvalidInput, match="a row from 3 to 6"):
        Plan(rows, "requests_in_system")


def test_a_window_is_compared_with_the_baseline_of_a_like_load_and_with_no_other() -> None:
    def at(number: int, energy_j: float, callers: float, requested: bool) -> Trial:
        load = {"requests_in_system": callers}
        shown = window(energy_j, context=load)
        return trial(number, measurement=shown, context=load if requested else {})

    trials = [at(1, 10.0, 4.0, False), at(2, 10.0, 4.0, False), at(3, 7.0, 1.0, True)]
    before = past(study(), trials)
    for callers, energy_j in [(4.0, 10.0), (4.4, 10.0), (1.0, 7.0)]:
        shown = before.baseline_at({"requests_in_system": callers})
        assert shown["energy_j"].mean == pytest.approx(energy_j)
    assert before.baseline_at({"requests_in_system": 16.0}) == {}
    assert before.baseline_at({})["energy_j"].mean == pytest.approx(10.0)


def test_a_load_of_another_signal_is_not_taken_for_the_studys() -> None:
    closed, rate = {"requests_in_system": 4.0}, {"arrival_rate_per_s": 10.0}
    trials = [
        trial(1, measurement=window(10.0, context=closed)),
        trial(2, measurement=window(30.0, context=rate), context=rate),
    ]
    before = past(study(), trials)
    assert before.baseline_at(rate)["energy_j"].mean == pytest.approx(30.0)
    assert before.baseline_at({"arrival_rate_per_s": 99.0}) == {}
