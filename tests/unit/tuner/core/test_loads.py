from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import trial
from tests.unit.tuner.bo.served import BY, CLOCKS, SPACE, asked, shown, truth
from tuner.core import (
    BaselineCourse,
    Estimate,
    LoadTrend,
    Phase,
    SettingKey,
    TrialState,
    at_equal_load,
    load_trend,
    peak_name,
    setting_key,
)

SLOW, FAST = setting_key({"clock": 1}), setting_key({"clock": 2})


def window(
    key: SettingKey, load: float, mean: float, share: float
) -> tuple[SettingKey, float, Estimate]:
    return key, load, Estimate.of_mean(mean, share * abs(mean), 10)


def test_variation_explained_by_the_load_is_not_error() -> None:
    loads = (4.0, 4.5, 5.0, 5.5, 6.0)
    seen = [window(SLOW, x, 90.0 / x, 0.1) for x in loads]
    seen += [window(FAST, x, 120.0 / x, 0.1) for x in loads]
    trend = load_trend(seen)
    assert trend.exponent == pytest.approx(-1.0) and trend.stderr == pytest.approx(0.0, abs=1e-6)
    assert trend.noise == pytest.approx(math.sqrt(3.0 / 10.0)), "of seven windows too many"


def test_unexplained_scatter_adds_to_the_reported_error() -> None:
    means = (100.0, 140.0, 90.0, 150.0)
    seen = [window(SLOW, x, y, 0.01) for x, y in zip((4.0, 4.5, 5.0, 5.5), means, strict=True)]
    assert load_trend(seen).noise > 5.0


def test_little_data_give_no_trend() -> None:
    assert load_trend([]) == load_trend([window(SLOW, 4.0, 9.0, 0.1)]) == LoadTrend(0.0, 1.0)
    assert load_trend([window(SLOW, 4.0, -9.0, 0.1)]) == LoadTrend(0.0, 0.0)


def test_windows_at_several_loads_compare_as_at_their_mean() -> None:
    loads, clocks = (20.0, 24.0, 28.0), (1500, 1100)
    trials = [
        trial(n, {"gpu.clock_mhz": clock}, shown({"gpu.clock_mhz": clock}, load))
        for n, (clock, load) in enumerate(itertools.product(clocks, loads), 1)
    ]
    moved = at_equal_load(trials, BY, {})
    at = (20.0 * 24.0 * 28.0) ** (1.0 / 3.0)
    for one, before in zip(moved, trials, strict=True):
        assert one.ran_at[BY] == pytest.approx(at), "all windows are of one load"
        assert one.ran_at[peak_name(BY)] == before.ran_at[peak_name(BY)]
        assert one.shown["latency_p99_ms"] == before.shown["latency_p99_ms"], "a tail stays"
    energy = [
        [t.shown["energy_j"].mean for t in moved if t.tries({"gpu.clock_mhz": c})] for c in clocks
    ]
    assert all(max(each) < 1.03 * min(each) for each in energy), "within 3 %, not 30 %"


def test_a_window_without_load_is_no_evidence_beside_others() -> None:
    """It is spent all the same: a night without requests must not try settings for ever."""
    met = trial(1, SPACE.default, shown(SPACE.default, 20.0))
    night = trial(2, SPACE.default, replace(shown(SPACE.default, 20.0), context={BY: 0.0}))
    failed = trial(3, SPACE.default, state=TrialState.FAILED)
    states = [t.state for t in at_equal_load([met, night, failed], BY, {})]
    assert states == [TrialState.COMPLETED, TrialState.CONTAMINATED, TrialState.FAILED]


@given(st.lists(st.floats(1.0, 50.0), min_size=1, max_size=8))
def test_moving_windows_to_an_equal_load_twice_changes_nothing(loads: list[float]) -> None:
    setting = {"gpu.clock_mhz": CLOCKS[-1]}
    once = at_equal_load(
        [trial(n, setting, shown(setting, x)) for n, x in enumerate(loads, 1)], BY, {}
    )
    twice = at_equal_load(once, BY, {})
    for a, b in zip(once, twice, strict=True):
        for name, e in a.shown.items():
            again = b.shown[name]
            for figure in ("mean", "stderr", "low", "high"):
                assert getattr(again, figure) == pytest.approx(getattr(e, figure))


def test_windows_without_the_load_are_left() -> None:
    (left,) = at_equal_load([trial(1, {"gpu.clock_mhz": 1500})], BY, {})
    assert left.shown["energy_j"].mean == 10.0


def test_a_bill_compares_a_window_with_the_baseline_at_its_own_load() -> None:
    loads = (10.0, 20.0, 30.0, 40.0)
    first = [
        trial(n, SPACE.default, shown(SPACE.default, load), phase=Phase.BASELINE)
        for n, load in enumerate(loads, 1)
    ]
    course = BaselineCourse.of(asked(), first)
    for load in loads:
        there = course.first({BY: load})["energy_j"].mean
        assert there == pytest.approx(truth(SPACE.default, load)[0])
