"""A group as it is now: its members, its plan, and what it cannot keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.budget.steps import LEAST_W, GroupMember, GroupPlan
from tuner.core import BudgetGroup, MemberRecord


@dataclass(frozen=True)
class GroupState:
    """A group, its members as they are stored, and what is to be sent to them now.

    `metrics` are those of the measured fronts, `measuring` the studies that measure one now, by device.
    `outside` are the watts that devices may draw that nobody has let in.
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
        """The watts that are kept for devices outside the group."""
        return self.group.reserve * self.steps[0][1]


def unkept(state: GroupState) -> str:
    """Return what a group cannot keep now, in words; empty where all is kept."""
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
    """Return why caps do not keep the limits of members, by device; without those that no cap keeps."""
    named = {}
    for name in state.plan.division.broken:
        needs_w = state.members[name].device.needs_w or 0.0
        if not math.isinf(needs_w):
            cap_w = state.plan.division.caps_w[name]
            text = f"the budget {state.group.name} leaves {name} {cap_w:.0f} W"
            named[name] = f"{text}; its limits need {needs_w:.0f} W"
    return named
