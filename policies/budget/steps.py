"""Plan the next caps to send to each member of a group, so that the group never exceeds its budget.

Caps are lowered first and raised later: a cap is raised only by watts that other members have given up and
acknowledged. A schedule that is sent ahead only lowers caps; a raise is sent when its time has come. A
member that does not answer is counted with the most that it may draw, and the others give up that much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.budget.division import BudgetMember, Division, divide
from tuner.core import LATE_S, CapSchedule, CapStep, MemberPower

ANSWER_S = 3.0
"""A member that has not acknowledged its caps for this time in seconds counts as unreachable: the other
members give up more watts."""
SILENT_S = 30.0
"""A member that sent no request for this time in seconds counts as unreachable. Agents poll every 10 s."""
LEAST_W = 0.5
"""The least increase of a cap, in watts: our choice."""
EXACT_W = 1e-6
"""A cap is lowered if it is too high by more watts than this: members round, and the sum must fit."""


@dataclass(frozen=True)
class GroupMember:
    """A member of a group: its device, and the power that it may draw.

    `sent_s` is the time at which the oldest schedule without an answer was sent; None if all were
    acknowledged.
    """

    device: BudgetMember
    power: MemberPower
    sent_s: float | None = None

    def reachable(self, now_s: float) -> bool:
        """Return whether the member is expected to follow a change now."""
        waits = self.sent_s is not None and now_s - self.sent_s > ANSWER_S
        here = now_s - self.power.heard_s <= SILENT_S and not self.power.silent(now_s)
        return here and not waits

    def answered(
        self, at_s: float, revision: int, *, most_w: float = 0.0, joined: bool = True
    ) -> GroupMember:
        """Return the member with its host's answer: its revision, and `most_w`, its highest cap till then.

        An answer may be old. If its revision is older than the acknowledged one, the acknowledged schedule
        counts as sent until its revision or a later one is acknowledged again.
        """
        power = self.power.heard(at_s, revision, most_w=most_w, member=joined)
        if revision < self.power.acknowledged.revision:
            power = replace(power, sent=(self.power.acknowledged, *self.power.sent))
        waits = None if not power.sent else at_s if self.sent_s is None else self.sent_s
        return replace(self, power=power, sent_s=waits)

    def watts(self, at_s: float, now_s: float) -> float:
        """Return the most watts that the member may draw at a time, if it answers then as it does now."""
        power = self.power
        if self.reachable(now_s):
            power = replace(power, heard_s=max(power.heard_s, at_s))
        return power.watts(at_s)


@dataclass(frozen=True)
class GroupPlan:
    """The next actions of a group: its division, and the schedules to send, by member.

    `unreachable` are the members that do not answer. `drawn_w` is the most power in watts that all members
    may draw. `missing_w` is the power above the budget that cannot be lowered: floors and unreachable
    members.
    """

    division: Division
    schedules: Mapping[str, CapSchedule]
    unreachable: tuple[str, ...]
    drawn_w: float
    missing_w: float


@dataclass(frozen=True)
class _Epoch:
    """A step of the budget, and the caps that divide it.

    `at_s` is its time and `by_s` the time at which the caps must be kept. `if_all_answer` is the division
    if the unreachable members come back.
    """

    at_s: float
    by_s: float
    budget_w: float
    division: Division
    if_all_answer: Division


def plan_group(
    members: Sequence[GroupMember], budget: Sequence[tuple[float, float]], now_s: float
) -> GroupPlan:
    """Return the next schedules of a group.

    `budget` has pairs of a time in seconds and watts, in order: the step in force now, then the later steps
    that are known. A step counts from `LATE_S` after its time.
    """
    reach = [m for m in members if m.reachable(now_s)]
    away = [m for m in members if not m.reachable(now_s)]
    epochs: list[_Epoch] = []
    for at_s, watts in budget:
        by_s = max(now_s, at_s + LATE_S)
        left = watts - math.fsum(m.watts(by_s, now_s) for m in away)
        above = math.fsum(m.watts(by_s, now_s) for m in members) > watts + LEAST_W
        division = divide([m.device for m in reach], left)
        if away and above and not epochs:
            # No time for a second refusal: all reachable members go to the floor, until the sum fits.
            division = replace(division, caps_w={m.device.name: m.device.floor_w for m in reach})
        of_all = division
        if away:  # each of several unreachable members may come back alone
            of_all = divide([m.device for m in members], watts if len(away) == 1 else 0.0)
        epochs.append(_Epoch(at_s, by_s, watts, division, of_all))
    drawn = [math.fsum(m.watts(e.by_s, now_s) for m in members) for e in epochs]
    schedules: dict[str, CapSchedule] = {}
    for lowers in (True, False):
        for member in members if lowers else reach:
            steps = _steps(member, epochs, now_s, epochs[0].budget_w - drawn[0], lowers=lowers)
            if not steps or member.device.name in schedules:
                continue
            schedule = CapSchedule(member.power.revision + 1, steps)
            after = replace(member, power=member.power.sending(schedule))
            then = [
                total + after.watts(e.by_s, now_s) - member.watts(e.by_s, now_s)
                for e, total in zip(epochs, drawn, strict=True)
            ]
            fits = (
                new <= max(e.budget_w, old) + EXACT_W
                for e, old, new in zip(epochs, drawn, then, strict=True)
            )
            if all(fits):
                schedules[member.device.name], drawn = schedule, then
    first = epochs[0]
    return GroupPlan(
        first.division,
        schedules,
        tuple(m.device.name for m in away),
        drawn[0],
        first.division.missing_w,
    )


def without_raises(plan: GroupPlan, members: Mapping[str, GroupMember], now_s: float) -> GroupPlan:
    """Return a plan without the schedules that raise a member now."""
    present = {name: _cap_w(members[name], now_s) for name in plan.schedules}
    kept = {
        name: schedule
        for name, schedule in plan.schedules.items()
        if (cap := present[name]) is None or schedule.steps[0].cap_w <= cap + EXACT_W
    }
    return replace(plan, schedules=kept)


def _steps(
    member: GroupMember, epochs: Sequence[_Epoch], now_s: float, spare_w: float, *, lowers: bool
) -> tuple[CapStep, ...]:
    """Return the steps to send to a member; empty if it has them already, or must wait.

    An unreachable member is sent the caps that it may have when it is back, so that it need not be lowered
    then.
    """
    name, floor = member.device.name, member.device.floor_w
    goals = [
        _whole(e.division.caps_w.get(name, e.if_all_answer.caps_w[name]), floor) for e in epochs
    ]
    present, goal = _cap_w(member, now_s), goals[0]
    lowered = min(goal, present) if present is not None else goal
    if lowers:
        cap = lowered
    elif present is None or goal < present + LEAST_W or member.power.sent:
        return ()
    else:
        cap = _whole(min(goal, present + max(0.0, spare_w)), floor)
        if cap < present + LEAST_W:
            return ()
    steps = [CapStep(now_s, cap)]
    for epoch, then in zip(epochs[1:], goals[1:], strict=True):
        if then < steps[-1].cap_w - EXACT_W:
            steps.append(CapStep(epoch.at_s, then))
    return () if _same(member, steps, now_s) else tuple(steps)


def _same(member: GroupMember, steps: Sequence[CapStep], now_s: float) -> bool:
    """Return whether the last sent caps are at most those of `steps`, and lower by less than `LEAST_W`."""
    if not member.power.member and not member.power.sent:
        return False
    latest, floor = member.power.latest, member.device.floor_w
    times = sorted({s.at_s for s in (*steps, *latest.steps) if s.at_s >= now_s} | {now_s})
    other = replace(latest, steps=tuple(steps))
    higher_w = [_at(latest, t, floor) - _at(other, t, floor) for t in times]
    return all(-LEAST_W < w <= EXACT_W for w in higher_w) and bool(
        latest.steps or steps[0].cap_w <= floor
    )


def _at(schedule: CapSchedule, at_s: float, floor_w: float) -> float:
    """Return the cap of a schedule at a time, in watts; the floor if it has none."""
    step = schedule.step(at_s)
    return floor_w if step is None else max(floor_w, step.cap_w)


def _cap_w(member: GroupMember, now_s: float) -> float | None:
    """Return the cap, in watts, that a member was sent last; None if it has not joined."""
    if not member.power.member and not member.power.sent:
        return None
    return _at(member.power.latest, now_s, member.device.floor_w)


def _whole(watts: float, floor_w: float) -> float:
    """Return whole watts, never below the floor: power limits are set in watts."""
    return max(floor_w, float(math.floor(watts + EXACT_W)))
