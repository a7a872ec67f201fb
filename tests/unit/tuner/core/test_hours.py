"""Hours of the day, as operators write them."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.errors import raised
from tuner.core import (
    InvalidInput,
    parse_hours,
    within_hours,
)


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
