"""A value over time: a constant, values by the hours of the week, or points from a file or a service."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from tuner.core.quantities import Finite
from tuner.errors import InvalidInput

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_QUARTER = timedelta(minutes=15)
"""In every time zone the hours begin at a quarter of an hour in UTC."""
_LONE_S = 3600.0
"""The time, in seconds, for which the only point of a series is in force: an hour."""
ALL_DAY = "0-24"


@dataclass(frozen=True, slots=True)
class HourRow:
    """A value in some hours (`22-6`) of some days (`mon` … `sun`; empty: every day).

    A row over midnight belongs to the day on which each of its hours lies.

    Raises:
        InvalidInput: the hours or a day cannot be read, or the value is not finite.
    """

    value: Finite
    hours: str = ALL_DAY
    days: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.value)
        parse_hours(self.hours)
        for day in self.days:
            if day not in _DAYS:
                raise InvalidInput(f"days cannot hold {day!r}", hint=f"write {', '.join(_DAYS)}")

    def covers(self, local: datetime) -> bool:
        """Return whether a local time lies in its hours and days."""
        days = not self.days or _DAYS[local.weekday()] in self.days
        return days and _lies_in(self.hours, local.hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """A value over time: a constant, else rows of hours, else points.

    `name` describes its source. The value at a time is that of the first row that covers it, by the clocks
    of `time_zone`. A point (seconds since 1970, value) is in force until the next point, and the last one
    for as long as the one before it. Values may be negative, as prices are at times.

    Raises:
        InvalidInput: a value is not finite, or the time zone is unknown.
    """

    name: str = ""
    constant: float | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    points: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for value in (self.constant, *(value for _, value in self.points)):
            if value is not None:
                _check(value)
        try:
            ZoneInfo(self.time_zone)
        except (LookupError, ValueError, OSError):
            raise InvalidInput(
                f"time_zone cannot be {self.time_zone!r}", hint='write a name like "Europe/Berlin"'
            ) from None

    def at(self, moment: datetime) -> float | None:
        """Return the value at a time; None if it is unknown."""
        if self.constant is not None:
            return self.constant
        if self.rows:
            local = moment.astimezone(ZoneInfo(self.time_zone))
            return next((row.value for row in self.rows if row.covers(local)), None)
        return self._point(moment.timestamp())

    def changes(self, since: datetime, until: datetime) -> Iterator[tuple[datetime, float | None]]:
        """Yield `since` with its value, then each time before `until` at which the value changes."""
        value = self.at(since)
        yield since, value
        for moment in self._moments(since, until):
            after = self.at(moment)
            if after != value:
                yield moment, after
                value = after

    def mean(self, since: datetime, until: datetime) -> float | None:
        """Return the mean over a period; None if the value is unknown in a part of it."""
        total = 0.0
        steps = [*self.changes(since, until), (until, 0.0)]
        for (start, value), (end, _) in itertools.pairwise(steps):
            if value is None:
                return None
            total += value * (end - start).total_seconds()
        seconds = (until - since).total_seconds()
        return total / seconds if seconds > 0.0 else self.at(since)

    def _moments(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the times between `since` and `until` at which the value may change."""
        if self.constant is not None:
            return
        if not self.rows:
            ends = (at for at, _ in self.points)
            for at in sorted({*ends, self._end()}):
                if since.timestamp() < at < until.timestamp():
                    yield datetime.fromtimestamp(at, timezone.utc)
            return
        quarter = _QUARTER.total_seconds()
        first = (since.timestamp() // quarter + 1.0) * quarter
        opens = datetime.fromtimestamp(first, timezone.utc)
        while opens < until:
            yield opens
            opens += _QUARTER

    def _end(self) -> float:
        """Return when the last point ends, in seconds since 1970."""
        if not self.points:
            return 0.0
        last = self.points[-1][0]
        return last + (last - self.points[-2][0] if len(self.points) > 1 else _LONE_S)

    def _point(self, at: float) -> float | None:
        """Return the value of the point in force at a time in seconds since 1970; None outside them."""
        place = bisect_right(self.points, (at, math.inf)) - 1
        return None if place < 0 or at >= self._end() else self.points[place][1]


def _check(value: float) -> None:
    """Raise InvalidInput if a value is not finite."""
    if not math.isfinite(value):
        raise InvalidInput(f"value cannot be {value}", hint="give a finite number")


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
    return _lies_in(text, at.astimezone().hour)


def _lies_in(text: str, hour: int) -> bool:
    start, end = parse_hours(text)
    return start <= hour < end if start < end else hour >= start or hour < end
