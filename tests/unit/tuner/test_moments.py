"""Times as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import START
from tests.errors import raised
from tuner.errors import InvalidInput
from tuner.moments import moment


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
def test_a_length_of_time_is_so_long_ago(text: str, ago: timedelta) -> None:
    assert moment("--since", text, START) == START - ago


def test_a_day_begins_at_this_machines_midnight() -> None:
    assert moment("--since", "2026-11-01", START) == datetime(2026, 11, 1).astimezone()
    assert moment("--since", "2026-11-01T12:00+00:00", START) == datetime(
        2026, 11, 1, 12, tzinfo=UTC
    )
    assert moment("--since", "", START) is None


@pytest.mark.parametrize(
    "text", ["yesterday", "2 d", "-2d", "d", "2mo", "2026-13-01", "9999999w", "1" + "0" * 400 + "d"]
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with raised(InvalidInput, "--until") as told:
        moment("--until", text, START)
    assert "2d, 36h, 2026-11-01 or 2026-11-01T12:00" in told.value.hint
