"""Hours of the day: allowed hours (`22-6`), and the hour as the signal of a plan."""

from __future__ import annotations

from datetime import datetime, timezone

from tuner.errors import InvalidInput

__all__ = [
    "ALL_DAY",
    "DAY_PARTS",
    "HOUR",
    "PART_HOURS",
    "hour_at",
    "hour_context",
    "parse_hours",
    "part_of_day",
    "within_hours",
]

ALL_DAY = "0-24"

HOUR = "hour"
"""The signal of the hour of the day, in UTC: no host needs a list of time zones."""

DAY_PARTS, PART_HOURS = 6, 4
"""The number of parts of the day, each with a row of a plan, and the hours of each: our choice.

A plan by load has at most as many rows.
"""


def parse_hours(text: str, of: str = "hours") -> tuple[int, int]:
    """Read `HH-HH` as its first and last hour. `of` is the name of the hours in an error.

    Raises:
        InvalidInput: the text is anything else.
    """
    first, dash, last = text.partition("-")
    refused = InvalidInput(f"{of} cannot be {text!r}", hint='write it like "22-6"')
    if not (dash and first.strip().isdigit() and last.strip().isdigit()):
        raise refused
    start, end = int(first), int(last)
    if not (0 <= start <= 23 and 0 <= end <= 24) or start == end:
        raise refused
    return start, end


def within_hours(text: str, at: datetime) -> bool:
    """Return whether a time lies in the hours, by this machine's time zone."""
    start, end = parse_hours(text)
    hour = at.astimezone().hour
    return start <= hour < end if start < end else hour >= start or hour < end


def hour_at(at: datetime) -> float:
    """Return the hour of the day at a time, in UTC: 0 to below 24."""
    utc = at.astimezone(timezone.utc)
    return utc.hour + (utc.minute + utc.second / 60.0) / 60.0


def hour_context(signal: str, at: datetime) -> dict[str, float]:
    """Return the hour of the day under the signal's name; empty if the signal is another."""
    return {HOUR: hour_at(at)} if signal == HOUR else {}


def part_of_day(hour: float) -> int:
    """Return the index, from 0, of the part of the day that an hour belongs to."""
    return int(hour // PART_HOURS)
