"""Views of groups that share watts, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from tuner.core import BudgetGroup, MemberRecord, StoredRows
from tuner.service.budgets.divider import WattDivider
from tuner.service.budgets.state import GroupState
from tuner.wire import BudgetMemberView, BudgetView


def budget_views(divider: WattDivider) -> list[BudgetView]:
    """Return all groups by name."""
    budgets = divider.loop.store.budgets
    groups, members = budgets.groups(), budgets.members()
    rows = divider.loop.changes.rows("the budget")
    views = [
        rows.each(g.name, partial(_view, divider, g, members), partial(_faulty, g.name))
        for g in groups
    ]
    views += rows.unread(groups, _faulty)
    return sorted(views, key=lambda view: view.name)


def budget_view(divider: WattDivider, name: str) -> BudgetView:
    """Return one group. Raises NotFound."""
    budgets = divider.loop.store.budgets
    return _view(divider, budgets.group(name), budgets.members())


def _view(
    divider: WattDivider, group: BudgetGroup, members: StoredRows[MemberRecord]
) -> BudgetView:
    """Return the view of a group with its present plan."""
    state, now_s = divider.shown(group, members), divider.now_s()
    later = state.steps[1] if len(state.steps) > 1 else None
    series = group.watts or divider.source(group)
    return BudgetView(
        name=group.name,
        select=dict(group.select),
        source=series.name if series is not None and series.name else group.series,
        budget_w=state.steps[0][1],
        next_at=None if later is None else datetime.fromtimestamp(later[0], UTC),
        next_w=None if later is None else later[1],
        may_draw_w=state.plan.drawn_w,
        missing_w=state.plan.missing_w,
        reboot_after_s=group.reboot_after_s,
        measure=group.measure,
        reserve_w=state.reserve_w,
        outside=dict(state.outside),
        events=tuple(e for e in group.events if e.expires_at > divider.loop.now()),
        members=tuple(_members(state, now_s)),
    )


def _faulty(name: str, why: str) -> BudgetView:
    """Return the view of a group that cannot be read or whose full view failed, with the reason."""
    return BudgetView(
        name=name, select={}, source="", budget_w=0.0, may_draw_w=0.0, reboot_after_s=0.0, error=why
    )


def _members(state: GroupState, now_s: float) -> Sequence[BudgetMemberView]:
    """Return the views of a group's members."""
    views = []
    for name, member in state.members.items():
        step = member.power.latest.step(now_s)
        joined = "joined" if member.power.member else "joining"
        views.append(
            BudgetMemberView(
                device=name,
                state="unreachable" if name in state.plan.unreachable else joined,  # type: ignore[arg-type]
                priority=member.device.priority,
                floor_w=member.device.floor_w,
                cap_w=member.device.floor_w if step is None else step.cap_w,
                may_draw_w=member.watts(now_s, now_s),
                front=state.metrics[name],
                measured_by=state.measuring.get(name, ""),
                by_clock=state.records[name].by_clock,
                unmet=name in state.plan.division.broken,
            )
        )
    return views
