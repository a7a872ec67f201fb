"""Groups of devices that share watts: declaration, events of the grid, and what members were sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from tuner.core.budgets import LATE_S, CapKnob, MemberPower
from tuner.core.devices import Device
from tuner.core.series import TimeSeries
from tuner.errors import InvalidInput

__all__ = ["BudgetGroup", "GridEvent", "MemberRecord"]

AHEAD = timedelta(hours=6)
"""Steps known ahead by so much are handed to agents."""
BEFORE = timedelta(seconds=2.0 * LATE_S)
MOST_STEPS = 24
LEAST_REBOOT_S = 30.0
DIGITS = 6
"""A cap of 250 W that travels as 249.99999999999997 would lose a step of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEvent:
    """A limit for some time: at most `watts`, or at most this `share` of what the group has by itself.

    Raises:
        InvalidInput: it has both or neither, a number is out of range, or it ends before it begins.
    """

    watts: float | None = None
    share: float | None = None
    effective_at: datetime
    expires_at: datetime
    who: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        if (self.watts is None) == (self.share is None):
            raise InvalidInput("an event needs watts or a share", hint="give one of the two")
        if self.watts is not None and not 0.0 <= self.watts < math.inf:
            raise InvalidInput(f"watts cannot be {self.watts}", hint="give 0 or more")
        if self.share is not None and not 0.0 <= self.share <= 1.0:
            raise InvalidInput(f"share cannot be {self.share}", hint="give 0 to 1; 0.75 is -25 %")
        if self.expires_at <= self.effective_at:
            raise InvalidInput(
                f"expires_at {self.expires_at:%Y-%m-%d %H:%M:%SZ} is not after effective_at",
                hint="give an event an end",
            )

    def limit_w(self, at: datetime, watts: float) -> float:
        """Return what it leaves of a group's own watts at a time."""
        if not self.effective_at <= at < self.expires_at:
            return watts
        return min(watts, self.watts if self.watts is not None else (self.share or 0.0) * watts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGroup:
    """Devices by what they are, and the watts that they share.

    `select` has patterns by field or label, as in a fleet file. The watts are those of `watts`, constant or
    by hour; or, with `series`, of the series of that name in tuner.toml. `priorities` are by patterns of
    device ids, 0 where none matches; the lowest give up their limits first. A member that was silent for
    `reboot_after_s` may have rebooted: it counts with its driver's default limit. With `measure` a member
    without a front of power has it measured by a study of its own.

    Raises:
        InvalidInput: nothing is selected, it has no watts or two sources of them, or a reboot is too soon.
    """

    name: str
    select: Mapping[str, tuple[str, ...]]
    watts: TimeSeries | None = None
    series: str = ""
    reboot_after_s: float = 120.0
    priorities: Mapping[str, int] = field(default_factory=dict)
    measure: bool = True
    events: tuple[GridEvent, ...] = ()
    revision: int = 0

    def __post_init__(self) -> None:
        if not self.select:
            raise InvalidInput("select is empty", hint='write { id = "*" } to select all devices')
        if (self.watts is None) == (not self.series):
            raise InvalidInput(
                f"the group {self.name} needs watts or a series", hint="give one of the two"
            )
        if not LEAST_REBOOT_S <= self.reboot_after_s < math.inf:
            raise InvalidInput(
                f"reboot_after_s cannot be {self.reboot_after_s:g}",
                hint=f"give at least {LEAST_REBOOT_S:g} s, and less than a host needs to boot",
            )

    def selects(self, device: Device) -> bool:
        """Return whether a device is in the group."""
        return all(
            (trait := device.trait(name)) is not None
            and any(fnmatchcase(trait, pattern) for pattern in patterns)
            for name, patterns in self.select.items()
        )

    def priority(self, device: str) -> int:
        """Return the priority of a device: that of the first pattern that matches its id."""
        matching = (p for pattern, p in self.priorities.items() if fnmatchcase(device, pattern))
        return next(matching, 0)

    def with_event(self, event: GridEvent, now: datetime) -> BudgetGroup:
        """Return it with one more event; those that are over are left out."""
        left = tuple(e for e in self.events if e.expires_at > now)
        return replace(self, events=(*left, event))

    def steps(self, source: TimeSeries | None, now: datetime) -> list[tuple[float, float]]:
        """Return the watts now and those known ahead, from when on, in seconds since 1970.

        `source` is the series it names. Where that is not known no watts are left: all go to the floor. The
        present step began when it did, or so long ago that it counts fully.
        """
        since, steps = now - BEFORE, list[tuple[float, float]]()
        for at in sorted(self._moments(source, since, now + AHEAD)):
            watts = self._watts(source, at)
            if not steps or watts != steps[-1][1]:
                steps.append((at.timestamp(), watts))
        present = max(n for n, (at_s, _) in enumerate(steps) if at_s <= now.timestamp())
        return steps[present : present + MOST_STEPS]

    def _moments(
        self, source: TimeSeries | None, since: datetime, until: datetime
    ) -> Iterator[datetime]:
        yield since
        series = self.watts or source
        if series is not None:
            yield from (at for at, _ in series.changes(since, until))
        for event in self.events:
            for at in (event.effective_at, event.expires_at):
                if since < at < until:
                    yield at

    def _watts(self, source: TimeSeries | None, at: datetime) -> float:
        series = self.watts or source
        own = (series.at(at) if series is not None else None) or 0.0
        return min((event.limit_w(at, own) for event in self.events), default=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A device that can be a member, and its group (empty: none), stored before anything is sent to it.

    `knobs` are its caps, as its host offers them. `sent_s` is when the oldest schedule without an answer
    was sent, in seconds since 1970. A `released` one goes back to its original setting, and has no group
    once its host has reported that.
    """

    device: str
    knobs: tuple[CapKnob, ...]
    power: MemberPower
    group: str = ""
    sent_s: float | None = None
    released: bool = False
    revision: int = 0

    @property
    def in_watts(self) -> bool:
        """Whether all its caps are in watts, and it has one."""
        return bool(self.knobs) and all(k.floor_w and k.default_w for k in self.knobs)

    @property
    def active(self) -> bool:
        """Whether it is a member, and is to stay one."""
        return bool(self.group) and not self.released

    def at_most(self, cap_w: float) -> dict[str, float]:
        """Return a cap as the values of its knobs: each has the same part of its range above its floor."""
        floor_w = sum(k.floor_w or 0.0 for k in self.knobs)
        span_w = sum(k.default_w or 0.0 for k in self.knobs) - floor_w
        part = min(1.0, max(0.0, (cap_w - floor_w) / span_w)) if span_w > 0.0 else 0.0
        return {
            k.name: round(
                k.floor * (1.0 + part * ((k.default_w or 0.0) - k.floor_w) / k.floor_w), DIGITS
            )
            for k in self.knobs
            if k.floor_w
        }
