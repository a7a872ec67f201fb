"""Times as operators type and read them: UTC on the calendar, or how long ago."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from tuner.errors import InvalidInput

FORMS = "2d, 36h, 2026-11-01 or 2026-11-01T12:00Z"
"""Examples of the accepted forms, for help texts and errors."""

AGO = re.compile(r"(\d+(?:\.\d+)?) ?([smhdw]|min|days?)(?: ago)?")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LENGTHS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
"""The length, in seconds, of each unit in which an age is shown."""


def moment(name: str, text: str, now: datetime) -> datetime | None:
    """Return the time that a text names; None for an empty text. A time without a zone is UTC.

    `name` is the option or field of the text, for the error.

    Raises:
        InvalidInput: the text has another form, or its time is not in the calendar.
    """
    if not text:
        return None
    try:
        if ago := AGO.fullmatch(text):
            return now - timedelta(**{UNITS[ago[2][0]]: float(ago[1])})
        # Python 3.10 cannot read the Z.
        at = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        hint = f"write {FORMS}; s, m, h, d and w are seconds to weeks ago"
        raise InvalidInput(f"{name} cannot be {text!r}", hint=hint) from None


def seconds(name: str, text: str) -> float:
    """Return a length of time in seconds: `90s`, `30m`, `2h`; `name` is its option, for the error.

    Raises:
        InvalidInput: the text has another form.
    """
    length = AGO.fullmatch(text)
    with suppress(OverflowError):
        if length is not None and not text.endswith("ago"):
            return timedelta(**{UNITS[length[2][0]]: float(length[1])}).total_seconds()
    raise InvalidInput(f"{name} cannot be {text!r}", hint="write 90s, 30m, 2h or 1d")


def when(at: datetime) -> str:
    """Return a time as every interface shows it, in UTC: `2026-11-21 13:25:34Z`."""
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}Z"


def day(at: datetime) -> str:
    """Return the date of a time, in UTC: `2026-11-21`."""
    return when(at)[:10]


def when_in_zone(at: datetime) -> str:
    """Return a time in its own zone, by name and weekday, for windows: `Sat 2026-11-21 02:00 CET`."""
    return f"{at:%a %Y-%m-%d %H:%M %Z}"


def ago(at: datetime, now: datetime) -> str:
    """Return the age of a time, in one unit: `12 s ago`, `3 h ago`; `in 5 min` for a time in the future."""
    seconds = (now - at).total_seconds()
    size, unit = next((size, unit) for size, unit in LENGTHS if abs(seconds) >= size or size == 1)
    count = int(abs(seconds) / size)
    if count == 0:
        return "now"
    text = f"{count} {'day' if unit == 'days' and count == 1 else unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"
