"""The loads of a study by the hour: summed as seen at first, later as the mean week."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from tests.builders import START, trial
from tests.unit.tuner.bo.test_load import BY, SPACE, asked, shown
from tuner.core import LoadHistory, MetricSample, load_band, setting_key
from tuner.study.load_history import HourlyLoads

STUDY = asked()


def held(hour: float, load: float, seconds: float = 600.0) -> MetricSample:
    return MetricSample(
        started_at=START + timedelta(hours=hour),
        seconds=seconds,
        setting=setting_key(SPACE.default),
        context={BY: load},
        completed=10,
        mean=1.0,
        stderr=0.1,
    )


def shares(samples: Iterable[MetricSample]) -> dict[int, float]:
    loads = HourlyLoads()
    loads.add(STUDY, list(samples))
    seconds = loads.history(STUDY, []).seconds
    return {band: s / sum(seconds.values()) for band, s in seconds.items()}


def test_until_two_weeks_are_seen_loads_count_as_long_as_they_lasted() -> None:
    seen = [held(0, 10.0), held(1, 10.0), held(2, 40.0), held(100, 40.0, 1200.0)]
    assert shares(seen) == {load_band(10.0): 0.4, load_band(40.0): pytest.approx(0.6)}


def test_from_then_on_every_hour_of_the_week_counts_the_same() -> None:
    weeks = [held(168 * week, 10.0) for week in range(3)]
    once = [held(168 * 2 + 5, 40.0)]
    assert shares([*weeks, *once]) == {load_band(10.0): 0.5, load_band(40.0): 0.5}


def test_loads_of_more_than_four_weeks_ago_are_forgotten() -> None:
    seen = [held(0, 10.0), held(5 * 168, 40.0), held(5 * 168 + 1, 40.0)]
    assert shares(seen) == {load_band(40.0): 1.0}


def test_windows_that_are_read_again_count_once() -> None:
    loads, samples = HourlyLoads(), [held(0, 10.0), held(1, 10.0)]
    loads.add(STUDY, samples[:1])
    assert loads.latest == START
    loads.add(STUDY, samples)
    loads.add(STUDY, samples[1:])
    assert loads.history(STUDY, []).seconds == {load_band(10.0): 1200.0}


def test_trials_count_too_where_they_requested_no_load() -> None:
    free = trial(1, SPACE.default, shown(SPACE.default, 30.0))
    assert HourlyLoads().history(STUDY, [free]).seconds == {load_band(30.0): 10.0}
    assert HourlyLoads().history(STUDY, []) == LoadHistory()
