"""Groups of devices that share watts: their declaration, grid events, caps and members' records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from tuner.core.devices import Device
from tuner.core.quantities import Finite, Share, Span, Watts
from tuner.core.series import TimeSeries
from tuner.errors import Conflict, InvalidInput

LATE_S = 10.0
"""The longest delay until a step takes effect: delivery, the host's clock, the write."""
POWER_CAP = "power cap"
"""The source of a window at the original setting while a budget kept the device below it."""
_AHEAD = timedelta(hours=6)
"""Agents receive the known steps of this time ahead."""
_BEFORE = timedelta(seconds=2.0 * LATE_S)
_MOST_STEPS = 24
MOST_EVENTS = _MOST_EXCEEDED = 16
RESERVE = 0.1
"""The default share of a group's watts that is reserved for devices not admitted to it: our choice."""
_ANOTHER = "give another id, or end an event: jouletune budget event end ID"
LEAST_REBOOT_S = 30.0
CEILING_MARGIN = 1.1
"""The ratio of a clock ceiling's watts to the highest power measured at or below it: our choice."""
_CLOSE_W = 1e-6
_DIGITS = 6
"""A cap of 250 W that travels as 249.99999999999997 would lose a step of the limit."""


@dataclass(frozen=True, slots=True)
class CapKnob:
    """A knob that caps a device's power, as its host offers it.

    `floor` is the value that the host falls back to while the device is a member, `floor_w` its watts.
    `default` is the greater of the driver's default and the original value, `default_w` its watts. A clock
    ceiling has no `floor_w`: its watts must be measured. Its `default_w` is the power limit that the driver
    keeps at any clock, None without such a limit.
    """

    name: str
    floor: Finite
    floor_w: Watts | None = None
    default_w: Watts | None = None
    default: Finite | None = None


@dataclass(frozen=True, slots=True)
class CapStep:
    """A cap from `at_s` on: `at_most` is the greatest value of each cap knob, `cap_w` its watts.

    `at_s` is in seconds on the monotonic clock of the host that keeps the step. A value below the floor, or
    no value for a knob, means the floor.
    """

    at_s: float
    cap_w: float
    at_most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CapSchedule:
    """The steps of one revision in order of time; before the first step the floor is in force.

    Raises:
        InvalidInput: the steps are not in order.
    """

    revision: int
    steps: tuple[CapStep, ...] = ()

    def __post_init__(self) -> None:
        times = [step.at_s for step in self.steps]
        if times != sorted(times):
            raise InvalidInput("the steps of a budget are not in order of time", hint="sort them")

    def step(self, at_s: float) -> CapStep | None:
        """Return the step in force at a time, None before the first."""
        return next((step for step in reversed(self.steps) if step.at_s <= at_s), None)

    def most_w(self, since_s: float, until_s: float) -> float:
        """Return the highest cap in force at any time of an interval, in watts; 0 before the first step."""
        first = self.step(since_s)
        later = [step for step in self.steps if since_s < step.at_s <= until_s]
        return max((step.cap_w for step in (first, *later) if step is not None), default=0.0)

    def shifted(self, seconds: float) -> CapSchedule:
        """Return the schedule on a clock that is ahead by `seconds`."""
        return replace(self, steps=tuple(replace(s, at_s=s.at_s + seconds) for s in self.steps))


NO_CAPS = CapSchedule(0)
"""A schedule without steps: the floor is in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPower:
    """The watts that one member may draw, by its last answer and the schedules sent since.

    A schedule counts from its sending until the host acknowledges it or a later one: the message may be
    lost or late, or the host may obey without answering. `heard_s` is the time of the host's last answer,
    on the same clock as the steps. `member` is false before the host has joined, and once its release is
    being sent: the device may then be at its original setting, so that `default_w` counts.
    """

    floor_w: float
    default_w: float
    reboot_after_s: float
    heard_s: float
    member: bool = False
    acknowledged: CapSchedule = NO_CAPS
    sent: tuple[CapSchedule, ...] = ()

    @property
    def latest(self) -> CapSchedule:
        """The last schedule that was sent, else the acknowledged one."""
        return self.sent[-1] if self.sent else self.acknowledged

    @property
    def revision(self) -> int:
        """The highest revision that was sent or acknowledged."""
        return max(s.revision for s in (self.acknowledged, *self.sent))

    def sending(self, schedule: CapSchedule) -> MemberPower:
        """Return the member with a schedule that is about to be sent.

        Raises:
            InvalidInput: the revision is not above all earlier ones.
        """
        if schedule.revision <= self.revision:
            raise InvalidInput(
                f"revision {schedule.revision} of caps does not follow {self.revision}",
                hint="give each schedule of a device a higher revision",
            )
        return replace(self, sent=(*self.sent, schedule))

    def releasing(self) -> MemberPower:
        """Return the member with its release about to be sent."""
        return replace(self, member=False)

    def heard(
        self, at_s: float, revision: int, most_w: float = 0.0, member: bool = True
    ) -> MemberPower:
        """Return the member with the host's answer: whether it is a member, and its revision in force.

        Schedules sent after that revision may still arrive, so they continue to count. A revision that is
        unknown here, as after the tuner's records were lost, counts with `most_w`: the highest cap of the
        steps that the host keeps. A host without steps, as after a reboot, answers revision 0.
        """
        same = (s for s in (*self.sent, self.acknowledged) if s.revision == revision)
        reported = CapSchedule(revision, (CapStep(at_s, most_w),))
        return replace(
            self,
            heard_s=at_s,
            member=member,
            acknowledged=next(same, reported),
            sent=tuple(s for s in self.sent if s.revision > revision),
        )

    def silent(self, at_s: float) -> bool:
        """Return whether the host may have rebooted since its last answer."""
        return at_s - self.heard_s > self.reboot_after_s

    def watts(self, at_s: float) -> float:
        """Return the highest cap in watts that may be in force at a time after the last answer.

        This is the greatest of the floor, the acknowledged cap and every cap sent since; and of `default_w`
        unless the device is a member whose host cannot have rebooted. A step that lowers the cap is done
        `LATE_S` after its time, except the first acknowledged step: hosts answer after the write.
        """
        caps = max(_most_w(schedule, at_s) for schedule in (self.acknowledged, *self.sent))
        free = not self.member or self.silent(at_s)
        return max(self.floor_w, caps, self.default_w if free else 0.0)


def _most_w(schedule: CapSchedule, at_s: float) -> float:
    """Return the highest cap of a schedule in the last `LATE_S`, but not before its first step."""
    first_s = schedule.steps[0].at_s if schedule.steps else at_s
    return schedule.most_w(min(at_s, max(at_s - LATE_S, first_s)), at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEvent:
    """A limit on a group for some time: at most `watts`, or at most this `share` of the group's own watts.

    A group has at most one event of each `id`. `who` is the name of the sender's token; when that token is
    revoked, the event ends.

    Raises:
        InvalidInput: it has both `watts` and `share` or neither, a number is out of range, or its end is
            not after its start.
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
        """Return the watts that the event leaves, at a time, of a group's own `watts`."""
        if not self.effective_at <= at < self.expires_at:
            return watts
        return min(watts, self.watts if self.watts is not None else (self.share or 0.0) * watts)


@dataclass(frozen=True, kw_only=True)
class BudgetTerms:
    """The fields that a group, its draft and its table in a fleet file have alike."""

    series: str = ""
    reboot_after_s: Span = 120.0
    measure: bool = True
    reserve: Share = RESERVE


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGroup(BudgetTerms):
    """A selection of devices, and the watts that they share.

    `select` has patterns by device field or label, as in a fleet file. The group's watts are those of
    `watts`, constant or by hour, or those of the series in tuner.toml that `series` names. `priorities` are
    by patterns of device ids, 0 if no pattern matches; members with the lowest priority lose their limits
    first. A member without an answer for `reboot_after_s` may have rebooted: it counts with its driver's
    default limit. With `measure`, a separate study measures the power front of a member that lacks one.
    `declared` is whether a fleet file declares the group. `reserve` is the share of the watts for devices
    that the group selects but that no operator has admitted.

    Raises:
        InvalidInput: `select` is empty, the group has no source of watts or two, watts are negative, or
            `reboot_after_s` is below `LEAST_REBOOT_S`.
    """

    name: str
    select: Mapping[str, tuple[str, ...]]
    watts: TimeSeries | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
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
        """Return whether the group's patterns match a device."""
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
        """Return the group with an event in place of one of the same id, and without expired events.

        Raises:
            Conflict: another sender has an event of this id, or the group has `MOST_EVENTS`.
        """
        like = [e for e in self.events if e.id and e.id == event.id]
        left = tuple(e for e in self.events if e.expires_at > now and e not in like)
        if any(e.who != event.who for e in like):
            raise Conflict(
                f"{self.name} has an event {event.id!r} of another sender", hint=_ANOTHER
            )
        if len(left) >= MOST_EVENTS:
            raise Conflict(f"{self.name} has {MOST_EVENTS} events", hint=_ANOTHER)
        return replace(self, events=(*left, event))

    def without_events(self, name: str) -> BudgetGroup:
        """Return the group without the events whose id or sender has this name."""
        return replace(self, events=tuple(e for e in self.events if name not in (e.id, e.who)))

    def steps(self, source: TimeSeries | None, now: datetime) -> list[tuple[float, float]]:
        """Return the present step and the known later ones, as start in seconds since 1970 and watts.

        `source` is the series that the group names. While its value is unknown the group has 0 W, so that
        all members go to their floors. The present step starts at its true time, or 2 `LATE_S` ago at most,
        which is early enough for it to count in full.
        """
        since, steps = now - _BEFORE, list[tuple[float, float]]()
        for at in sorted(self._moments(source, since, now + _AHEAD)):
            watts = self._watts(source, at)
            if not steps or watts != steps[-1][1]:
                steps.append((at.timestamp(), watts))
        present = max(n for n, (at_s, _) in enumerate(steps) if at_s <= now.timestamp())
        return steps[present : present + _MOST_STEPS]

    def _moments(
        self, source: TimeSeries | None, since: datetime, until: datetime
    ) -> Iterator[datetime]:
        """Yield `since` and the times after it at which the group's watts may change, in any order."""
        yield since
        series = self.watts or source
        if series is not None:
            yield from (at for at, _ in series.changes(since, until))
        for event in self.events:
            for at in (event.effective_at, event.expires_at):
                if since < at < until:
                    yield at

    def _watts(self, source: TimeSeries | None, at: datetime) -> float:
        """Return the group's watts at a time, under its events."""
        series = self.watts or source
        own = max(0.0, (series.at(at) if series is not None else None) or 0.0)
        return min((event.limit_w(at, own) for event in self.events), default=own)


@dataclass(frozen=True, slots=True)
class CeilingPower:
    """Clock ceilings by knob, and the watts that a device counts with while it keeps them."""

    at_most: Mapping[str, float]
    watts: float

    def covers(self, values: Mapping[str, float]) -> bool:
        """Return whether no value exceeds its ceiling, so that these values draw no more than `watts`.

        This assumes that power does not fall as the clock rises.
        """
        return all(self.at_most.get(name, math.inf) >= value for name, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A device with power caps and its group (empty: none); stored before anything is sent to the device.

    `knobs` are the cap knobs that its host offers. `sent_s` is the time when the oldest schedule without an
    answer was sent, in seconds since 1970. A `released` device returns to its original setting; once its
    host has reported this, it has no group.

    `admitted` is the group to which an operator admitted the device, `outside` a group that selects it by
    the fields that its agent reports but to which it is not admitted.

    `ceilings` are the clock ceilings, with their watts, of a device whose only caps are clocks, from its
    floor up to its original clock; empty if they were not measured. `exceeded` are ceilings under which the
    device drew more than their watts, with the power drawn.
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
        """Whether all its caps are clock ceilings, which bound power only as far as it was measured."""
        return bool(self.knobs) and all(k.floor_w is None for k in self.knobs)

    @property
    def in_watts(self) -> bool:
        """Whether it has a cap knob, and the watts of all its caps are known."""
        limits = all(k.floor_w and k.default_w for k in self.knobs)
        return bool(self.knobs) and (bool(self.ceilings) if self.by_clock else limits)

    @property
    def floor_w(self) -> float:
        """The watts that the device counts with at its floor."""
        if self.by_clock:
            return self.ceilings[0].watts if self.ceilings else 0.0
        return sum(k.floor_w or 0.0 for k in self.knobs)

    @property
    def default_w(self) -> float:
        """The watts that the device counts with while it is not capped."""
        if self.by_clock:
            return self.ceilings[-1].watts if self.ceilings else 0.0
        return sum(k.default_w or 0.0 for k in self.knobs)

    @property
    def active(self) -> bool:
        """Whether the device is a member that has not been released."""
        return bool(self.group) and not self.released

    def let_in(self, group: BudgetGroup) -> bool:
        """Return whether the device is a member of a group, or admitted to it by an operator.

        A device whose id is in `select` without patterns counts as admitted.
        """
        named = self.device in group.select.get("id", ())
        return named or group.name in (self.admitted, self.group if self.active else "")

    def at_most(self, cap_w: float) -> dict[str, float]:
        """Return the values of the cap knobs for a cap in watts.

        Each power limit gets the same part of its range above its floor. Clock ceilings are the highest
        whose watts are at most the cap, else the floor.
        """
        if self.by_clock:
            within = [c for c in self.ceilings if c.watts <= cap_w + _CLOSE_W] or self.ceilings[:1]
            return dict(within[-1].at_most) if within else {}
        span_w = self.default_w - self.floor_w
        part = min(1.0, max(0.0, (cap_w - self.floor_w) / span_w)) if span_w > 0.0 else 0.0
        return {
            k.name: round(
                k.floor * (1.0 + part * ((k.default_w or 0.0) - k.floor_w) / k.floor_w), _DIGITS
            )
            for k in self.knobs
            if k.floor_w
        }

    def with_ceilings(self, measured: Sequence[CeilingPower]) -> MemberRecord:
        """Return the record with its ceilings by measured power, and the caps sent so far counted by them.

        A ceiling's watts are the highest power measured at or below it, times `CEILING_MARGIN`, but at most
        the driver's limit. There are no ceilings if the driver keeps no limit and no power was measured at
        the original clock.
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
        """Return the floor, the measured ceilings and the original clock with their watts, by watts.

        Empty if the watts of one of them are unbounded.
        """
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
        """Return a schedule whose steps count with at least the present watts of their ceilings."""
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
        """Return the least watts of a ceiling at or above these values, the uncapped watts without one."""
        return min((c.watts for c in self.ceilings if c.covers(at_most)), default=self.default_w)

    def exceeding(
        self,
        watts: float,
        at_most: Mapping[str, float],
        measured: Sequence[CeilingPower],
        now_s: float,
    ) -> MemberRecord:
        """Return the record of a device that drew more than the watts of its ceilings, sent to its floor.

        Its host has set the floor already. From now on these ceilings count with the power drawn.
        """
        at = {k.name: at_most[k.name] for k in self.knobs if k.name in at_most}
        like = [c for c in self.exceeded if c.at_most == at or len(self.exceeded) >= _MOST_EXCEEDED]
        others = tuple(c for c in self.exceeded if c not in like)
        # Merged: the lowest of the ceilings' values, with the highest of their watts.
        lowest = {
            n: min(v, *(c.at_most.get(n, v) for c in like)) if like else v for n, v in at.items()
        }
        most = CeilingPower(lowest, max([watts, *(c.watts for c in like)]))
        drew = replace(self, exceeded=(*others, most))
        after = drew.with_ceilings(measured)
        revision = after.power.revision
        floor = CapStep(now_s, after.floor_w, {k.name: k.floor for k in self.knobs})
        power = after.power.sending(CapSchedule(revision + 1, (floor,)))
        return replace(after, power=power, sent_s=now_s)


def _highest_w(at: Mapping[str, float], measured: Sequence[CeilingPower]) -> float:
    """Return a ceiling's watts by the lowest measured ceiling at or above it; 0 if none was measured."""
    above = [m for m in measured if m.covers(at)]
    if not above:
        return 0.0
    least = min(above, key=lambda m: sum(m.at_most.values()))
    return CEILING_MARGIN * max(m.watts for m in measured if least.covers(m.at_most))
