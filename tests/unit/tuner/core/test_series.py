"""Values over time: by the hours of a time zone, and points whose last value expires."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from tests.errors import raised
from tuner.core import (
    HourRow,
    InvalidInput,
    TimeSeries,
    parse_hours,
    within_hours,
)

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
NIGHT = TimeSeries(
    rows=(HourRow(0.1, "22-6"), HourRow(0.2, days=("sat", "sun")), HourRow(0.3)),
    time_zone="Europe/Berlin",
)


def test_the_first_row_that_covers_a_time_has_its_value() -> None:
    assert NIGHT.at(MONDAY + timedelta(hours=4)) == 0.1
    assert NIGHT.at(MONDAY + timedelta(hours=5)) == 0.3, "six o'clock in Berlin"
    assert NIGHT.at(MONDAY + timedelta(days=5, hours=12)) == 0.2


def test_hours_follow_the_clocks_of_the_zone_when_those_change() -> None:
    summer = datetime(2026, 3, 30, tzinfo=UTC)
    assert NIGHT.at(summer + timedelta(hours=4)) == 0.3, "six o'clock in Berlin is an hour earlier"
    changes = [at for at, _ in NIGHT.changes(summer, summer + timedelta(days=1))]
    assert [at.hour for at in changes] == [0, 4, 20]


def test_hours_that_no_row_covers_are_unknown() -> None:
    gap = TimeSeries(rows=(HourRow(1.0, "8-18"),))
    assert gap.at(MONDAY) is None
    assert gap.mean(MONDAY, MONDAY + timedelta(days=1)) is None


def test_a_mean_weighs_each_value_by_its_time() -> None:
    day = MONDAY, MONDAY + timedelta(days=1)
    assert NIGHT.mean(*day) == pytest.approx((8 * 0.1 + 16 * 0.3) / 24)
    assert TimeSeries(constant=2.0).mean(*day) == 2.0


def test_a_point_lasts_until_the_next_and_the_last_as_long_as_the_one_before() -> None:
    start = MONDAY.timestamp()
    points = TimeSeries(points=((start, 5.0), (start + 1800.0, 7.0)))
    minutes = {m: points.at(MONDAY + timedelta(minutes=m)) for m in (-1, 0, 29, 30, 59, 60)}
    assert minutes == {-1: None, 0: 5.0, 29: 5.0, 30: 7.0, 59: 7.0, 60: None}
    hours = points.changes(MONDAY, MONDAY + timedelta(hours=2))
    assert [(at.minute, value) for at, value in hours] == [(0, 5.0), (30, 7.0), (0, None)]


def test_an_invalid_value_or_zone_is_refused_by_name() -> None:
    with raised(InvalidInput, "inf"):
        HourRow(math.inf)
    with raised(InvalidInput, "monday"):
        HourRow(1.0, days=("monday",))
    with raised(InvalidInput, "Mars/Base"):
        TimeSeries(constant=1.0, time_zone="Mars/Base")


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [("0-24", [0, 12, 23], []), ("8-17", [8, 16], [7, 17]), ("22-6", [22, 0, 5], [6, 21])],
)
def test_hours_may_go_over_midnight(hours: str, inside: list[int], outside: list[int]) -> None:
    at = datetime(2026, 1, 1).astimezone()
    assert all(within_hours(hours, at.replace(hour=h)) for h in inside)
    assert not any(within_hours(hours, at.replace(hour=h)) for h in outside)


@pytest.mark.parametrize("hours", ["", "8", "8-8", "25-3", "-1-3", "8-25", "a-b"])
def test_invalid_hours_are_refused_by_name(hours: str) -> None:
    with raised(InvalidInput, "control_hours", hours):
        parse_hours(hours, "control_hours")
