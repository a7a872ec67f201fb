from __future__ import annotations

import math

import pytest

from tuner.core import LOAD_BAND, LOAD_STEP, LoadHistory, band_edges, load_band


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
