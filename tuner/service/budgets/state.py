"""The present state of a group: its members, their stored times, its plan, and the faults of its budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.budget.steps import LEAST_W, SILENT_S, GroupMember, GroupPlan
from tuner.core import BudgetGroup, CapSchedule, CapStep, MemberRecord
from tuner.study.loop import SteadyClock

AWAY_S = 10.0
"""After this many seconds without a division, which is due every second, this tuner no longer leads."""


@dataclass(frozen=True)
class GroupState:
    """A group, its members as stored, and the plan to send to them now.

    `steps` are the group's watts from now on, each with its start in seconds since 1970. By device,
    `metrics` are the metrics of the measured fronts, and `measuring` the studies that measure one now.
    `outside` are the watts of selected devices that no operator has admitted.
    """

    group: BudgetGroup
    steps: Sequence[tuple[float, float]]
    records: Mapping[str, MemberRecord]
    members: Mapping[str, GroupMember]
    plan: GroupPlan
    metrics: Mapping[str, str]
    measuring: Mapping[str, str]
    outside: Mapping[str, float]

    @property
    def reserve_w(self) -> float:
        """Return the watts kept for devices outside the group."""
        return self.group.reserve * self.steps[0][1]


def unkept(state: GroupState) -> str:
    """Return the faults of a group's budget in words; empty without faults.

    They are missing watts, unreachable members, unmet limits, and too many watts outside the group.
    """
    plan, parts = state.plan, []
    if plan.missing_w > LEAST_W:
        parts.append(f"{plan.missing_w:.0f} W are missing")
    if plan.unreachable:
        parts.append(f"unreachable: {', '.join(plan.unreachable)}")
    if plan.division.broken:
        parts.append(f"LIMIT NOT MET: {', '.join(plan.division.broken)}")
    if math.fsum(state.outside.values()) > state.reserve_w:
        names = ", ".join(sorted(state.outside))
        parts.append(f"outside the group and above its reserve of {state.reserve_w:.0f} W: {names}")
    return "; ".join(parts)


def limits_not_met(state: GroupState) -> Mapping[str, str]:
    """Return why caps do not keep the limits of members, by device.

    A member whose limits no cap keeps is left out.
    """
    named = {}
    for name in state.plan.division.broken:
        needs_w = state.members[name].device.needs_w or 0.0
        if not math.isinf(needs_w):
            cap_w = state.plan.division.caps_w[name]
            text = f"the budget {state.group.name} leaves {name} {cap_w:.0f} W"
            named[name] = f"{text}; its limits need {needs_w:.0f} W"
    return named


@dataclass(frozen=True, slots=True)
class _Seen:
    """A stored time, and when this tuner first saw it; `before`: it was stored before this tuner led."""

    stored: float | None
    at_s: float
    before: bool


class MemberTimes:
    """Converts stored times of members to this tuner's clock.

    A time stored before this tuner leads is on an unknown clock: another tuner's, or this one's before a
    step. So silence counts from the start of the lead, and an earlier schedule counts with its highest cap.
    Until a member has answered it may draw more than the stored caps; if it stays silent it counts with the
    most that it may draw. If a stored time changes later, it is taken as the time of its change, unless
    this clock can have written it.
    """

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._began_s = self._looked_s = -math.inf
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._foreign: dict[str, int] = {}

    @property
    def leads(self) -> bool:
        """Return whether this tuner divides the watts."""
        return self._clock() - self._looked_s <= AWAY_S

    def look(self, records: Iterable[MemberRecord]) -> None:
        """Note the stored times. Only the leader calls it, every second."""
        now_s, anew = self._clock(), not self.leads
        self._looked_s = now_s
        if anew:
            self._began_s, self._seen, self._foreign = now_s, {}, {}
        for record in records:
            if anew:
                self._foreign[record.device] = record.power.revision
            for kind, stored in (("heard", record.power.heard_s), ("sent", record.sent_s)):
                seen = self._seen.get((record.device, kind))
                if seen is None or seen.stored != stored:
                    own = stored is not None and self._began_s <= stored <= now_s
                    at_s = stored if own and not anew and stored is not None else now_s
                    self._seen[record.device, kind] = _Seen(stored, at_s, before=anew)

    def unheard(self, device: str) -> bool:
        """Return whether a member has not answered since this tuner began to lead."""
        seen = self._seen.get((device, "heard"))
        return self.leads and seen is not None and seen.before

    def of(self, record: MemberRecord) -> MemberRecord:
        """Return a member with its times on this clock."""
        now_s, name, power = self._clock(), record.device, record.power
        heard_s, sent_s, foreign = min(power.heard_s, now_s), record.sent_s, -1
        if self.leads and (heard := self._seen.get((name, "heard"))):
            heard_s = self._when(name, "heard", power.heard_s)
            if heard.before and now_s - heard_s > SILENT_S:
                heard_s = -math.inf  # the start of its silence is unknown
            sent_s = None if sent_s is None else self._when(name, "sent", sent_s)
            foreign = self._foreign.get(name, -1)
        own = [_acknowledged(s, now_s, foreign) for s in (power.acknowledged, *power.sent)]
        power = replace(power, heard_s=heard_s, acknowledged=own[0], sent=tuple(own[1:]))
        return replace(record, power=power, sent_s=sent_s)

    def _when(self, device: str, kind: str, stored: float) -> float:
        """Return when a time was stored, on this clock; now if it has changed since the last look."""
        seen, now_s = self._seen.get((device, kind)), self._clock()
        if seen is not None and seen.stored == stored:
            return seen.at_s
        return stored if self._began_s <= stored <= now_s else now_s


def _acknowledged(schedule: CapSchedule, now_s: float, foreign: int) -> CapSchedule:
    """Return a schedule on this clock: its first step is in force, as hosts apply it on receipt.

    Of a schedule up to the revision `foreign`, stored before the lead, only the highest cap counts.
    """
    steps = schedule.steps
    if not steps:
        return schedule
    if schedule.revision <= foreign:
        most = max(steps, key=lambda step: step.cap_w)
        return replace(schedule, steps=(CapStep(0.0, most.cap_w, most.at_most),))
    return replace(schedule, steps=(replace(steps[0], at_s=min(steps[0].at_s, now_s)), *steps[1:]))
