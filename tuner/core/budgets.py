"""Power caps over time, and the most watts that a member of a budget may draw after any failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.core.units import Finite, Watts
from tuner.errors import InvalidInput

__all__ = ["LATE_S", "NO_CAPS", "POWER_CAP", "CapKnob", "CapSchedule", "CapStep", "MemberPower"]

LATE_S = 10.0
"""The longest delay until a step takes effect: delivery, the host's clock, the write."""
POWER_CAP = "power cap"
"""The source of a window at the original setting while a budget kept the device below it."""


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
