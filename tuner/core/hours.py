"""Allowed hours of the day: `22-6`."""

from __future__ import annotations

from datetime import datetime

from tuner.errors import InvalidInput

__all__ = ["ALL_DAY", "parse_hours", "within_hours"]

ALL_DAY = "0-24"


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
