"""The operators' verbs for groups that share watts: declared, changed, released and shown; grid events."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

import db
from tuner.core import (
    ACTIVE,
    BudgetGroup,
    BudgetTerms,
    Conflict,
    Device,
    GridEvent,
    InvalidInput,
    MemberRecord,
    NotFound,
    TimeSeries,
    Unreadable,
)
from tuner.rows import StoredRows
from tuner.service.budgets.divider import WattDivider
from tuner.service.budgets.state import GroupState
from tuner.service.creation import about
from tuner.service.energy_price import EnergyPrice
from tuner.study.changes import looking_again
from tuner.study.loop import Loop
from tuner.verbs.table import Verbs
from tuner.wire import (
    AdmitDraft,
    BudgetDraft,
    BudgetMemberView,
    BudgetView,
    Change,
    GridDraft,
    StudyView,
)

HORIZON = timedelta(days=7)
"""The longest time until an event ends: its sender may be gone by then."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class BudgetOperations(Verbs[StudyView]):
    """The verbs of budgets, over one loop and its store. A refused request changes nothing."""

    loop: Loop
    price: EnergyPrice

    @cached_property
    def divider(self) -> WattDivider:
        """Return the divider of the groups' watts."""
        return WattDivider(self.loop, self.price)

    def budgets(self) -> list[BudgetView]:
        """Return the groups that share watts, by name."""
        budgets, rows = self.loop.store.budgets, self.loop.changes.rows("the budget")
        groups, members = budgets.groups(), budgets.members()
        views = [
            rows.each(g.name, partial(_view, self.divider, g, members), partial(_faulty, g.name))
            for g in groups
        ]
        views += rows.unread(groups, _faulty)
        return sorted(views, key=lambda view: view.name)

    def budget(self, name: str) -> BudgetView:
        """Return a group that shares watts. Raises NotFound."""
        budgets = self.loop.store.budgets
        return _view(self.divider, budgets.group(name), budgets.members())

    def set_budget(self, name: str, draft: BudgetDraft) -> BudgetView:
        """Declare a group, or change the one of that name; its events stay.

        Raises:
            InvalidInput: a value is not valid, a device has no floor, or the floors exceed the watts.
            Conflict: a device is in another group.
        """
        others = [g for g in self.loop.store.budgets.groups() if g.name != name]
        group = checked(self.divider, name, draft, others)
        put(self.divider, group, f"set by {draft.who}{_why(draft)}")
        return self.budget(name)

    def release_budget(self, name: str, change: Change) -> None:
        """Remove a group; every member returns to its original setting. Raises NotFound."""
        release_budget(self.divider, name, change)

    def admit(self, name: str, draft: AdmitDraft) -> BudgetView:
        """Admit devices to a group that selects them.

        Raises:
            NotFound: the group or a device does not exist.
            InvalidInput: the group does not select a device, it has no floor, or the floors exceed the
                watts.
        """
        loop, budgets = self.loop, self.loop.store.budgets
        group, devices = budgets.group(name), [loop.store.devices.get(d) for d in draft.devices]
        if other := next((d.id for d in devices if not group.selects(d)), ""):
            raise InvalidInput(
                f"{name} does not select {other}", hint="`budget show` lists who waits"
            )
        records = {r.device: self.divider.valued(r) for r in budgets.members()}
        _refuse_members(group, devices, (), records)
        floors = {n: r.floor_w for n, r in records.items() if r.group == name or n in draft.devices}
        _refuse_floors(self.divider, group, floors)
        for device in devices:
            _let_in(budgets, name, device.id)
        loop.changes.note(
            "budget", f"{name}: {', '.join(draft.devices)} let in by {draft.who}{_why(draft)}"
        )
        return self.budget(name)

    def grid_event(self, draft: GridDraft) -> list[BudgetView]:
        """Put an event in force for the named groups, or for all.

        Raises:
            NotFound: a named group does not exist, or no group is declared.
            InvalidInput: the event is not valid, is over, or ends after more than 7 days.
            Conflict: another sender has an event of this id, or a group has too many events.
        """
        loop, now = self.loop, self.loop.now()
        values = {field.name: getattr(draft, field.name) for field in fields(GridEvent)}
        values["effective_at"] = draft.effective_at or now
        event = GridEvent(**values | {"id": draft.id or secrets.token_hex(4)})
        if not now < event.expires_at <= now + HORIZON:
            when = (
                "in the past" if event.expires_at <= now else f"more than {HORIZON.days} days ahead"
            )
            raise InvalidInput(
                f"expires_at is {when}", hint="end it within 7 days, and send it again then"
            )
        names = draft.groups or tuple(g.name for g in loop.store.budgets.groups())
        if not names:
            raise NotFound("there is no budget", hint="declare one with `budget set`")
        for name in names:
            loop.store.budgets.group(name)
        for name in names:
            _add(loop.store.budgets, now, name, event)
        limit = f"{event.watts:g} W" if event.watts is not None else f"{event.share:.0%}"
        loop.changes.note(
            "grid", f"{', '.join(names)}: at most {limit}, by {draft.who}{_why(draft)}"
        )
        return [self.budget(name) for name in names]

    def end_grid_event(self, event: str, change: Change) -> list[BudgetView]:
        """End an event, or all events of a sender, before its time. Raises NotFound."""
        names = end_events(self.loop.store.budgets, event)
        if not names:
            raise NotFound(f"there is no event {event!r}", hint="`budget show` lists them")
        self.loop.changes.note("grid", f"{', '.join(names)}: {event} ended by {change.who}")
        return [self.budget(name) for name in names]

    def under_budget(self, view: StudyView) -> StudyView:
        """Return a study's view with the caps that do not keep its limits.

        Caps change without a change of the study.
        """
        capped = self.divider.capped() if view.phase in ACTIVE else {}
        why = "; ".join(capped[name] for name in view.devices if name in capped)
        return view.model_copy(update={"capped": why}) if why else view


def checked(
    divider: WattDivider, name: str, draft: BudgetDraft, others: Sequence[BudgetGroup]
) -> BudgetGroup:
    """Return the group of a draft, checked beside the other groups; an error names the key at fault.

    Raises InvalidInput, Conflict, as `BudgetOperations.set_budget` does.
    """
    loop = divider.loop
    with about("name"):
        if not NAME.fullmatch(name):
            hint = "use letters, digits, '.', '_' and '-'"
            raise InvalidInput(f"name cannot be {name!r}", hint=hint)
    group = group_of(name, draft)
    if draft.series and divider.source(group) is None:
        names = ", ".join(divider.price.others) or "none"
        with about("series"):
            raise InvalidInput(
                f"there is no series {draft.series!r}; tuner.toml has {names}",
                hint=f"add [series.{draft.series}] to tuner.toml, then restart the tuner",
            )
    with about("select"):
        records = {r.device: divider.valued(r) for r in loop.store.budgets.members()}
        anew = all(g.name != name for g in loop.store.budgets.groups())
        inside = {n for n, r in records.items() if r.let_in(group)}
        members = [
            d for d in loop.store.devices.list() if group.selects(d) and (anew or d.id in inside)
        ]
        _refuse_members(group, members, others, records)
    with about("series" if draft.series else "rows" if draft.rows else "watts"):
        floors = {d.id: records[d.id].floor_w for d in members}
        _refuse_floors(divider, group, floors)
    return group


@looking_again
def put(divider: WattDivider, group: BudgetGroup, how: str) -> None:
    """Store a group in place of the one of its name, whose events stay.

    A new group admits all registered devices that it selects.
    """
    budgets = divider.loop.store.budgets
    former: BudgetGroup | None = None
    with suppress(NotFound):
        former = budgets.group(group.name)
    if former is not None:
        declared = group.declared or former.declared
        group = replace(group, events=former.events, revision=former.revision, declared=declared)
    else:
        for device in filter(group.selects, divider.loop.store.devices.list()):
            _let_in(budgets, group.name, device.id)
    budgets.put_group(group)
    divider.loop.changes.note("budget", f"{group.name} {how}")


@looking_again
def _let_in(budgets: db.Budgets, group: str, device: str) -> None:
    """Record that an operator has admitted a device to a group."""
    if record := budgets.member(device):
        budgets.put_member(replace(record, admitted=group))


def group_of(name: str, draft: BudgetDraft) -> BudgetGroup:
    """Return the group of a draft, not checked against devices. Raises InvalidInput."""
    if sum((draft.watts is not None, bool(draft.rows), bool(draft.series))) != 1:
        raise InvalidInput(
            f"the budget {name} needs one of watts, rows and series", hint="give --watts 4000"
        )
    watts = None
    if not draft.series:
        by = f"{name} by hour" if draft.rows else name
        watts = TimeSeries(
            name=by, constant=draft.watts, rows=draft.rows, time_zone=draft.time_zone
        )
    return BudgetGroup(
        name=name,
        select=draft.select,
        watts=watts,
        priorities=draft.priorities,
        **{field.name: getattr(draft, field.name) for field in fields(BudgetTerms)},
    )


def _refuse_members(
    group: BudgetGroup,
    members: Sequence[Device],
    others: Sequence[BudgetGroup],
    records: Mapping[str, MemberRecord],
) -> None:
    """Refuse a group without devices, with devices of other groups, or with devices without watts."""
    if not members:
        raise InvalidInput(
            f"no device matches select of {group.name}", hint="list them with `device list`"
        )
    for device in members:
        other = next((g for g in others if g.selects(device)), None)
        if other is not None:
            raise Conflict(
                f"{device.id} is in the budget {other.name}", hint="select it in one of them"
            )
    unknown = [d.id for d in members if d.id in records and records[d.id].by_clock]
    unknown = [name for name in unknown if not records[name].in_watts]
    if unknown:
        raise InvalidInput(
            f"power was not measured from the floor to the original clock: {', '.join(unknown)}",
            hint=f"run `study create --device {unknown[0]} --policy power-sweep --no-constraint`",
        )
    bare = [d.id for d in members if d.id not in records or not records[d.id].in_watts]
    if bare:
        raise InvalidInput(
            f"no power cap with a floor in watts: {', '.join(bare)}",
            hint="set [device.budget] floor = { … } in actuator.toml of its host, to power limits alone "
            "or to clocks alone",
        )


def _refuse_floors(divider: WattDivider, group: BudgetGroup, floors: Mapping[str, float]) -> None:
    """Refuse floors whose sum exceeds the least watts of the group."""
    steps = group.steps(divider.source(group), divider.loop.now())
    least_w = min(watts for _, watts in steps)
    missing = sum(floors.values()) - least_w
    if missing > 0.0:
        named = ", ".join(f"{name} {watts:g} W" for name, watts in floors.items())
        raise InvalidInput(
            f"the floors of {group.name} need {missing:.0f} W more than its least budget of "
            f"{least_w:.0f} W: {named}",
            hint="raise its watts, or lower floors in actuator.toml of these hosts",
        )


def release_budget(divider: WattDivider, name: str, change: Change) -> None:
    """Remove a group: every member returns to its original setting. Raises NotFound."""
    budgets = divider.loop.store.budgets
    with suppress(Unreadable):
        budgets.group(name)
    budgets.forget_group(name)
    for record in budgets.members():
        if record.group == name and record.active:
            divider.release(record)
    divider.loop.changes.note("budget", f"{name} released by {change.who}{_why(change)}")


def end_events(budgets: db.Budgets, name: str) -> Sequence[str]:
    """End the event of an id, or the events of a sender, in all groups; return the groups' names."""
    return [group for g in budgets.groups() if (group := _without(budgets, g.name, name))]


@looking_again
def _without(budgets: db.Budgets, group: str, name: str) -> str:
    """Remove such events from a group; return its name, empty if it had no such event."""
    before = budgets.group(group)
    if (after := before.without_events(name)) != before:
        return budgets.put_group(after).name
    return ""


@looking_again
def _add(budgets: db.Budgets, now: datetime, name: str, event: GridEvent) -> None:
    """Add an event to a group, in place of the one of its id. Raises Conflict."""
    budgets.put_group(budgets.group(name).with_event(event, now))


def _why(change: Change) -> str:
    """Return the reason of a change as the end of an event's text; empty without a reason."""
    return f": {change.why}" if change.why else ""


def _view(
    divider: WattDivider, group: BudgetGroup, members: StoredRows[MemberRecord]
) -> BudgetView:
    """Return the view of a group with its present plan."""
    state, now_s = divider.shown(group, members), divider.now_s()
    later = state.steps[1] if len(state.steps) > 1 else None
    series = group.watts or divider.source(group)
    return BudgetView.of(
        group,
        source=series.name if series is not None and series.name else group.series,
        budget_w=state.steps[0][1],
        next_at=None if later is None else datetime.fromtimestamp(later[0], UTC),
        next_w=None if later is None else later[1],
        may_draw_w=state.plan.drawn_w,
        missing_w=state.plan.missing_w,
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
