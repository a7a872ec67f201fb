"""Hours of the day in which something may be done, as an operator writes them: `22-6`."""

from __future__ import annotations

from datetime import datetime

from tuner.errors import InvalidInput

__all__ = ["ALL_DAY", "parse_hours", "within_hours"]

ALL_DAY = "0-24"


def parse_hours(text: str, of: str = "hours") -> tuple[int, int]:
    """Read `HH-HH`: from the first full hour until the last. `of` names in an error what they are.

    Raises:
        InvalidInput: it is anything else.
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
    """Return whether a time, in the machine's own zone, lies in the hours."""
    start, end = parse_hours(text)
    hour = at.astimezone().hour
    return start <= hour < end if start < end else hour >= start or hour < end
