from __future__ import annotations

import math

import pytest

from tuner.core import (
    LOAD_BAND,
    LOAD_STEP,
    Bursts,
    Estimate,
    LoadHistory,
    LoadTrend,
    SettingKey,
    band_edges,
    burst_names,
    bursts_of,
    load_band,
    load_trend,
    load_turns,
    loads_ahead,
    setting_key,
)

SLOW, FAST = setting_key({"clock": 1}), setting_key({"clock": 2})


def window(
    key: SettingKey, load: float, mean: float, share: float
) -> tuple[SettingKey, float, Estimate]:
    return key, load, Estimate.of_mean(mean, share * abs(mean), 10)


def test_variation_explained_by_the_load_is_no_error() -> None:
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


def test_little_tells_no_trend() -> None:
    assert load_trend([]) == load_trend([window(SLOW, 4.0, 9.0, 0.1)]) == LoadTrend(0.0, 1.0)
    assert load_trend([window(SLOW, 4.0, -9.0, 0.1)]) == LoadTrend(0.0, 0.0)


def test_two_bands_are_as_wide_as_windows_may_differ_that_are_compared() -> None:
    assert pytest.approx(1.0 - 1.0 / LOAD_STEP**2) == LOAD_BAND


@pytest.mark.parametrize("load", [0.004, 0.9, 1.0, 1.25, 7.3, 4000.0])
def test_a_load_lies_within_its_band(load: float) -> None:
    low, high = band_edges(load_band(load))
    assert low <= load * (1.0 + 1e-9) and load < high


def test_edges_belong_to_the_band_above_them() -> None:
    assert [load_band(band_edges(band)[0]) for band in range(-20, 20)] == list(range(-20, 20))


def test_nothing_asked_for_has_a_band() -> None:
    assert load_band(0.0) == load_band(-1.0) == load_band(1e-9)


def test_a_history_adds_up_the_time_of_each_band() -> None:
    seen = LoadHistory.of([(10.0, 30.0), (10.1, 30.0), (40.0, 20.0), (math.inf, 5.0), (3.0, 0.0)])
    assert seen.seconds == {load_band(10.0): 60.0, load_band(40.0): 20.0}


def test_bursts_sum_what_exceeds_a_bound_and_are_forgotten_below_it() -> None:
    bursts = Bursts(2.0)
    bursts.add(9.0, 3.0)
    assert bursts.levels == pytest.approx((21.0, 18.0, 15.0, 3.0))
    bursts.add(1.0, 4.0)
    assert bursts.levels == pytest.approx((17.0, 10.0, 3.0, 0.0))
    bursts.cap((5.0, 20.0, 1.0, 1.0))
    assert bursts.levels == pytest.approx((5.0, 10.0, 1.0, 0.0))


def test_a_burst_of_too_few_requests_is_not_counted() -> None:
    calm = [(1.0, 1.0)] * 1000
    assert bursts_of([*calm, (20.0, 1.0)], 1.1)[0] < 1.0, "20 of 1020 requests are below 2 %"
    assert bursts_of([*calm, (30.0, 1.0)], 1.1)[0] == pytest.approx(28.9)
    assert bursts_of([], 1.0) == (0.0, 0.0, 0.0, 0.0)


def test_of_windows_that_few_requests_bound_the_largest_burst_counts() -> None:
    spans = [(1.0, 1.0)] * 297 + [(3.0, 1.0)]
    assert bursts_of(spans, 1.1, requests=True)[0] == pytest.approx(1.9), "299 leave none out"
    assert bursts_of(spans, 1.1)[0] == 0.0
    many = [(1.0, 1.0)] * 100_000 + [(300.0, 1.0)]
    assert bursts_of(many, 1.1, requests=True)[0] < 100.0


BY, BURST_BY = "rate", burst_names("rate")[0]


def windows(*loads: float, burst: float = 0.0) -> list[tuple[dict[str, float], float]]:
    return [({BY: load, BURST_BY: burst}, 300.0) for load in loads]


def test_the_load_ahead_is_the_present_one_unless_a_burst_explains_it() -> None:
    assert loads_ahead(3.0, BY, []) == (3.0,) and loads_ahead(0.0, BY, []) == ()
    assert loads_ahead(3.0, BY, windows(2.0, burst=30.0)) == (3.0,)
    assert loads_ahead(3.0, BY, windows(2.0, burst=90.0)) == (2.0,)
    assert loads_ahead(3.0, BY, windows(2.0, burst=90.0), recent=False) == (3.0,), "days ago"
    assert loads_ahead(0.0, BY, windows(2.0)) == (2.0,), "nothing arrived since"


def test_a_load_that_rose_may_do_so_again_and_one_that_fell_not() -> None:
    assert loads_ahead(2.0, BY, windows(2.0, 4.0, 2.0)) == (4.0, 2.0)
    assert loads_ahead(2.0, BY, windows(4.0, 3.0, 2.0)) == (2.0,)
    assert loads_ahead(2.0, BY, windows(2.0, 4.0, *[2.0] * 6)) == (2.0,), "long ago"
    short = [*windows(2.0, 2.0), ({BY: 9.0}, 40.0), *windows(2.0)]
    assert loads_ahead(2.0, BY, short) == (2.0,), "by chance within a short window"


def test_a_load_that_rose_for_good_does_not_turn() -> None:
    assert load_turns(BY, windows(2.0, 4.0, 4.0, 4.0)) == 0
    assert load_turns(BY, windows(2.0, 4.0, 2.0, 2.0)) == 1
    assert load_turns(BY, windows(2.0, 4.0, 2.0, 4.0)) == 2
    assert load_turns(BY, windows(2.0, 2.2, 2.1, 2.3)) == load_turns(BY, []) == 0
