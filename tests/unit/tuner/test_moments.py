"""Times as users type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from tests.builders import START
from tests.errors import raised
from tuner.errors import InvalidInput
from tuner.moments import ago, day, moment, seconds, when, when_in_zone


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("36h", timedelta(hours=36)),
        ("1.5d", timedelta(hours=36)),
        ("2w", timedelta(days=14)),
    ],
)
def test_a_duration_counts_back_from_now(text: str, ago: timedelta) -> None:
    assert moment("--since", text, START) == START - ago


def test_a_time_without_a_zone_is_utc() -> None:
    assert moment("--since", "2026-11-01", START) == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("--since", "2026-11-01T12:00+00:00", START) == datetime(
        2026, 11, 1, 12, tzinfo=UTC
    )
    assert moment("--since", "", START) is None


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2  d", "-2d", "d", "2mo", "2026-13-01", "9999999w", "1" + "0" * 400 + "d"],
)
def test_text_that_does_not_parse_is_refused_with_the_valid_forms(text: str) -> None:
    with raised(InvalidInput, "--until") as refused:
        moment("--until", text, START)
    assert "2d, 36h, 2026-11-01 or 2026-11-01T12:00Z" in refused.value.hint


@pytest.mark.parametrize("text", ["", "5", "2h ago", "9999999999w", "1" + "0" * 400 + "d"])
def test_another_length_of_time_is_refused(text: str) -> None:
    with raised(InvalidInput, "--timeout"):
        seconds("--timeout", text)


def test_a_time_that_is_shown_can_be_typed() -> None:
    at = datetime(2026, 11, 1, 13, 5, 9, tzinfo=timezone(timedelta(hours=1)))
    assert when(at) == "2026-11-01 12:05:09Z"
    assert moment("--since", when(at), START) == at


def test_a_date_is_that_of_utc_and_a_window_opens_in_its_own_zone() -> None:
    at = datetime(2026, 11, 1, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert day(at) == "2026-10-31"
    assert when_in_zone(at) == "Sun 2026-11-01 00:30 CET"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "now"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (7199, "1 h ago"),
        (86400 * 9, "9 days ago"),
        (-300, "in 5 min"),
    ],
)
def test_an_age_is_shown_in_one_unit_and_can_be_typed(seconds: float, shown: str) -> None:
    assert ago(START - timedelta(seconds=seconds), START) == shown
    if shown.endswith("ago"):
        back = moment("--since", shown, START)
        assert back is not None and 0.0 <= seconds - (START - back).total_seconds() < 86400.0
