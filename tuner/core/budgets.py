"""Power caps over time, and the watts that a member of a budget may draw, whatever has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.core.units import Finite, Watts
from tuner.errors import InvalidInput

__all__ = ["LATE_S", "NO_CAPS", "POWER_CAP", "CapKnob", "CapSchedule", "CapStep", "MemberPower"]

LATE_S = 10.0
"""How long after its time a step may take effect: delivery, the host's clock, the write."""
POWER_CAP = "power cap"
"""The source of a window at the original setting that a budget kept lower."""


@dataclass(frozen=True, slots=True)
class CapKnob:
    """A knob that caps a device's power, as its host offers it.

    `floor` is the value that its host falls back to while the device is a member, `floor_w` that value in
    watts, `default` the greater of its driver's default and its original value, `default_w` that in watts.
    A clock ceiling has no `floor_w`: only a measurement tells its watts. Its `default_w` is the limit that
    the driver keeps whatever the clock, None where it has none.
    """

    name: str
    floor: Finite
    floor_w: Watts | None = None
    default_w: Watts | None = None
    default: Finite | None = None


@dataclass(frozen=True, slots=True)
class CapStep:
    """From `at_s` on no cap knob is above `at_most`, by knob; it counts as `cap_w` watts.

    `at_s` is in seconds on the monotonic clock of the host that keeps the step. A value below a floor
    counts as the floor, and so does a knob without a value.
    """

    at_s: float
    cap_w: float
    at_most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CapSchedule:
    """The steps of one revision, in order of time; before the first the floor is in force.

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
        """Return the step in force, None before the first."""
        return next((step for step in reversed(self.steps) if step.at_s <= at_s), None)

    def most_w(self, since_s: float, until_s: float) -> float:
        """Return the highest cap in force at any time of an interval, in watts; 0 before the first step."""
        first = self.step(since_s)
        later = [step for step in self.steps if since_s < step.at_s <= until_s]
        return max((step.cap_w for step in (first, *later) if step is not None), default=0.0)

    def shifted(self, seconds: float) -> CapSchedule:
        """Return it on a clock that is ahead by `seconds`."""
        return replace(self, steps=tuple(replace(s, at_s=s.at_s + seconds) for s in self.steps))


NO_CAPS = CapSchedule(0)
"""There is no step: the floor is in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPower:
    """The watts that one member may draw, as far as its last answer and what was sent since tell.

    A schedule counts from the moment that it is sent until the host has acknowledged it or a later one: the
    message may be lost, late or obeyed without an answer. `heard_s` is when the host last answered, on the
    same clock as the steps. `member` is false before the host has joined, and from the moment that its
    release is sent: it may then be at its original setting, so that `default_w` counts.
    """

    floor_w: float
    default_w: float
    reboot_after_s: float
    heard_s: float
    member: bool = False
    acknowledged: CapSchedule = NO_CAPS
    sent: tuple[CapSchedule, ...] = ()

    def sending(self, schedule: CapSchedule) -> MemberPower:
        """Return it with a schedule that is about to be sent.

        Raises:
            InvalidInput: its revision is not above those before.
        """
        latest = max((s.revision for s in (self.acknowledged, *self.sent)), default=0)
        if schedule.revision <= latest:
            raise InvalidInput(
                f"revision {schedule.revision} of caps does not follow {latest}",
                hint="give each schedule of a device a higher revision",
            )
        return replace(self, sent=(*self.sent, schedule))

    def releasing(self) -> MemberPower:
        """Return it with its release about to be sent."""
        return replace(self, member=False)

    def heard(
        self, at_s: float, revision: int, most_w: float = 0.0, member: bool = True
    ) -> MemberPower:
        """Return it with the host's answer: a member or not, and the revision in force there.

        What was sent after that revision may still arrive, so it counts on. Of a revision that is not known
        here, as after a loss of memory, all that counts is `most_w`: the highest cap that the host still
        has before it. Revision 0 is that of a host that knows no steps, as after a reboot.
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
        """Return whether its host may have rebooted since its last answer."""
        return at_s - self.heard_s > self.reboot_after_s

    def watts(self, at_s: float) -> float:
        """Return the most watts that may be in force at a time, not before its last answer.

        The greater of its floor, the cap acknowledged and every cap sent since. A step that lowers counts
        as done `LATE_S` after its time. The first step acknowledged is done: hosts answer after the write.
        """
        caps = max(_most_w(schedule, at_s) for schedule in (self.acknowledged, *self.sent))
        free = not self.member or self.silent(at_s)
        return max(self.floor_w, caps, self.default_w if free else 0.0)


def _most_w(schedule: CapSchedule, at_s: float) -> float:
    """Return the highest cap that a schedule may have in force; its first step replaces what was before."""
    first_s = schedule.steps[0].at_s if schedule.steps else at_s
    return schedule.most_w(min(at_s, max(at_s - LATE_S, first_s)), at_s)
