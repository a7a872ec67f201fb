"""Moments as operators type them: a time on the calendar, or so long ago."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from tuner.errors import InvalidInput

FORMS = "2d, 36h, 2026-11-01 or 2026-11-01T12:00"
"""What is accepted, by example, for help texts and refusals."""

AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(name: str, text: str, now: datetime) -> datetime | None:
    """Return the time that a text names, None for none; without a zone it is this machine's.

    `name` is what the text was given for, as a refusal calls it.

    Raises:
        InvalidInput: it is in none of the accepted forms, or no calendar has it.
    """
    if not text:
        return None
    try:
        if ago := AGO.fullmatch(text):
            return now - timedelta(**{UNITS[ago[2]]: float(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        hint = f"write {FORMS}; s, m, h, d and w are seconds to weeks ago"
        raise InvalidInput(f"{name} cannot be {text!r}", hint=hint) from None
