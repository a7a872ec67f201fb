"""The present state of a group: its members, its plan, and the faults of its budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.budget.steps import LEAST_W, GroupMember, GroupPlan
from tuner.core import BudgetGroup, MemberRecord


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
