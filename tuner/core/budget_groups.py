"""Groups of devices that share watts: declaration, events of the grid, and what members were sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from tuner.core.budgets import LATE_S, CapKnob, CapSchedule, CapStep, MemberPower
from tuner.core.devices import Device
from tuner.core.series import TimeSeries
from tuner.core.units import Share, Watts
from tuner.errors import Conflict, InvalidInput

__all__ = ["CEILING_MARGIN", "RESERVE", "BudgetGroup", "CeilingPower", "GridEvent", "MemberRecord"]

AHEAD = timedelta(hours=6)
"""Steps known ahead by so much are handed to agents."""
BEFORE = timedelta(seconds=2.0 * LATE_S)
MOST_STEPS = 24
MOST_EVENTS = MOST_EXCEEDED = 16
RESERVE = 0.1
"""The share of a group's watts that devices outside it may take: our choice."""
ANOTHER = "give another id, or end an event: jouletune budget event end ID"
LEAST_REBOOT_S = 30.0
CEILING_MARGIN = 1.1
"""What a clock ceiling counts with, over the highest power measured at or below it: our choice."""
CLOSE_W = 1e-6
DIGITS = 6
"""A cap of 250 W that travels as 249.99999999999997 would lose a step of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEvent:
    """A limit for some time: at most `watts`, or at most this `share` of what the group has by itself.

    A group has one of each `id`; `who` is the token that sent it, and ends with it.

    Raises:
        InvalidInput: it has both or neither, a number is out of range, or it ends before it begins.
    """

    watts: Watts | None = None
    share: Share | None = None
    effective_at: datetime
    expires_at: datetime
    who: str = ""
    why: str = ""
    id: str = ""

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
    without a front of power has it measured by a study of its own. `declared`: a fleet file has it.
    `reserve` is the share of its watts for devices that it selects and that nobody has let in.

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
    reserve: Share = RESERVE
    declared: bool = False
    events: tuple[GridEvent, ...] = ()
    revision: int = 0

    def __post_init__(self) -> None:
        if not self.select:
            raise InvalidInput("select is empty", hint='write { id = "*" } to select all devices')
        if (self.watts is None) == (not self.series):
            raise InvalidInput(
                f"the group {self.name} needs watts or a series", hint="give one of the two"
            )
        rows = (
            (self.watts.constant or 0.0, *(r.value for r in self.watts.rows)) if self.watts else ()
        )
        if min(rows, default=0.0) < 0.0:
            raise InvalidInput(f"watts cannot be {min(rows):g}", hint="give 0 or more")
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
        """Return it with an event in place of the one of its id; those that are over are left out.

        Raises:
            Conflict: another sender has an event of this id, or the group has too many.
        """
        like = [e for e in self.events if e.id and e.id == event.id]
        left = tuple(e for e in self.events if e.expires_at > now and e not in like)
        if any(e.who != event.who for e in like):
            raise Conflict(f"{self.name} has an event {event.id!r} of another sender", hint=ANOTHER)
        if len(left) >= MOST_EVENTS:
            raise Conflict(f"{self.name} has {MOST_EVENTS} events", hint=ANOTHER)
        return replace(self, events=(*left, event))

    def without_events(self, name: str) -> BudgetGroup:
        """Return it without the event of an id, or without those of a sender."""
        return replace(self, events=tuple(e for e in self.events if name not in (e.id, e.who)))

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
        own = max(0.0, (series.at(at) if series is not None else None) or 0.0)
        return min((event.limit_w(at, own) for event in self.events), default=own)


@dataclass(frozen=True, slots=True)
class CeilingPower:
    """Clock ceilings by knob, and the watts that a device counts with under them."""

    at_most: Mapping[str, float]
    watts: float

    def covers(self, values: Mapping[str, float]) -> bool:
        """Return whether no value is above its ceiling here: watts at a higher clock are no fewer."""
        return all(self.at_most.get(name, math.inf) >= value for name, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A device that can be a member, and its group (empty: none), stored before anything is sent to it.

    `knobs` are its caps, as its host offers them. `sent_s` is when the oldest schedule without an answer
    was sent, in seconds since 1970. A `released` one goes back to its original setting, and has no group
    once its host has reported that.

    `admitted` is the group that an operator let it into, `outside` one that selects it by what its agent
    says of it, and that it is not let into.

    `ceilings` are the watts of a device whose only caps are clocks, rising from its floor to its original
    clock; empty where they were not measured. `exceeded` are the watts that it drew above what it counted
    with, and under which ceilings.
    """

    device: str
    knobs: tuple[CapKnob, ...]
    power: MemberPower
    group: str = ""
    sent_s: float | None = None
    released: bool = False
    admitted: str = ""
    outside: str = ""
    ceilings: tuple[CeilingPower, ...] = ()
    exceeded: tuple[CeilingPower, ...] = ()
    revision: int = 0

    @property
    def by_clock(self) -> bool:
        """Whether all its caps are clock ceilings: these bound power only as far as it was measured."""
        return bool(self.knobs) and all(k.floor_w is None for k in self.knobs)

    @property
    def in_watts(self) -> bool:
        """Whether it has a cap, and none of unknown watts."""
        limits = all(k.floor_w and k.default_w for k in self.knobs)
        return bool(self.knobs) and (bool(self.ceilings) if self.by_clock else limits)

    @property
    def floor_w(self) -> float:
        """The watts that it counts with at its floor."""
        if self.by_clock:
            return self.ceilings[0].watts if self.ceilings else 0.0
        return sum(k.floor_w or 0.0 for k in self.knobs)

    @property
    def default_w(self) -> float:
        """The watts that it counts with while nothing caps it."""
        if self.by_clock:
            return self.ceilings[-1].watts if self.ceilings else 0.0
        return sum(k.default_w or 0.0 for k in self.knobs)

    @property
    def active(self) -> bool:
        """Whether it is a member, and is to stay one."""
        return bool(self.group) and not self.released

    def let_in(self, group: BudgetGroup) -> bool:
        """Return whether an operator let it into a group, or named it there."""
        named = self.device in group.select.get("id", ())
        return named or group.name in (self.admitted, self.group if self.active else "")

    def at_most(self, cap_w: float) -> dict[str, float]:
        """Return a cap as the values of its knobs: each has the same part of its range above its floor.

        Of clock ceilings, the highest that counts with no more.
        """
        if self.by_clock:
            within = [c for c in self.ceilings if c.watts <= cap_w + CLOSE_W] or self.ceilings[:1]
            return dict(within[-1].at_most) if within else {}
        span_w = self.default_w - self.floor_w
        part = min(1.0, max(0.0, (cap_w - self.floor_w) / span_w)) if span_w > 0.0 else 0.0
        return {
            k.name: round(
                k.floor * (1.0 + part * ((k.default_w or 0.0) - k.floor_w) / k.floor_w), DIGITS
            )
            for k in self.knobs
            if k.floor_w
        }

    def with_ceilings(self, measured: Sequence[CeilingPower]) -> MemberRecord:
        """Return it with the watts of its ceilings by measured power; what it was sent counts by them.

        Each ceiling counts with the highest power at or below it, times `CEILING_MARGIN`, at most with the
        limit that its driver keeps. Without that limit and without power at its original clock, or at or
        above its floor, there are none.
        """
        ceilings = self._valued([*measured, *self.exceeded])
        if ceilings == self.ceilings:
            return self
        after = replace(self, ceilings=ceilings)
        power = replace(
            after.power,
            floor_w=after.floor_w,
            default_w=after.default_w,
            acknowledged=after._counted(self.power.acknowledged),
            sent=tuple(after._counted(schedule) for schedule in self.power.sent),
        )
        return replace(after, power=power)

    def _valued(self, measured: Sequence[CeilingPower]) -> tuple[CeilingPower, ...]:
        if not self.by_clock or any(k.default is None for k in self.knobs):
            return self.ceilings
        limits_w = [k.default_w for k in self.knobs if k.default_w]
        limit_w = sum(limits_w) if len(limits_w) == len(self.knobs) else math.inf
        unknown_w = min(limit_w, self.default_w or math.inf)
        floor = {k.name: k.floor for k in self.knobs}
        original = {k.name: max(k.floor, k.default or 0.0) for k in self.knobs}
        inner = [dict(m.at_most) for m in measured if m.covers(floor) and m.at_most != original]
        valued = [
            CeilingPower(at, min(limit_w, _highest_w(at, measured) or unknown_w))
            for at in (floor, *inner, original)
        ]
        if any(math.isinf(one.watts) for one in valued):
            return ()
        return tuple(sorted(valued, key=lambda c: (c.watts, sum(c.at_most.values()))))

    def _counted(self, schedule: CapSchedule) -> CapSchedule:
        """Return a schedule whose steps count at least with the watts of their ceilings now."""
        return replace(
            schedule,
            steps=tuple(
                replace(step, cap_w=max(step.cap_w, self._watts(step.at_most)))
                if step.at_most
                else step
                for step in schedule.steps
            ),
        )

    def _watts(self, at_most: Mapping[str, float]) -> float:
        return min((c.watts for c in self.ceilings if c.covers(at_most)), default=self.default_w)

    def exceeding(
        self,
        watts: float,
        at_most: Mapping[str, float],
        measured: Sequence[CeilingPower],
        now_s: float,
    ) -> MemberRecord:
        """Return it sent to its floor, as it drew more under some ceilings than these count with.

        Its host has gone there by itself. From now on they count with what it drew.
        """
        at = {k.name: at_most[k.name] for k in self.knobs if k.name in at_most}
        like = [c for c in self.exceeded if c.at_most == at or len(self.exceeded) >= MOST_EXCEEDED]
        others = tuple(c for c in self.exceeded if c not in like)
        # As one, they count from the lowest of their ceilings with the highest of their watts.
        lowest = {
            n: min(v, *(c.at_most.get(n, v) for c in like)) if like else v for n, v in at.items()
        }
        most = CeilingPower(lowest, max([watts, *(c.watts for c in like)]))
        drew = replace(self, exceeded=(*others, most))
        after = drew.with_ceilings(measured)
        revision = max(s.revision for s in (after.power.acknowledged, *after.power.sent))
        floor = CapStep(now_s, after.floor_w, {k.name: k.floor for k in self.knobs})
        power = after.power.sending(CapSchedule(revision + 1, (floor,)))
        return replace(after, power=power, sent_s=now_s)


def _highest_w(at: Mapping[str, float], measured: Sequence[CeilingPower]) -> float:
    """Return what a ceiling counts with: by the next ceiling above it with power; 0 where none has."""
    above = [m for m in measured if m.covers(at)]
    if not above:
        return 0.0
    least = min(above, key=lambda m: sum(m.at_most.values()))
    return CEILING_MARGIN * max(m.watts for m in measured if least.covers(m.at_most))
