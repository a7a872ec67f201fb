"""Divides the watts of each group: what the leader does every second, and what hosts answer to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from policies.budget.division import BudgetMember
from policies.budget.steps import LEAST_W, GroupMember, GroupPlan, plan_group
from tuner.core import (
    BudgetGroup,
    CapKnob,
    CapSchedule,
    Device,
    Event,
    MemberPower,
    MemberRecord,
    Notice,
    StaleRevision,
    TimeSeries,
    Topic,
)
from tuner.service.budgets.fronts import MeasuredFronts
from tuner.service.energy_price import EnergyPrice
from tuner.study.loop import Loop

log = logging.getLogger(__name__)

HEARD_S = 5.0
"""Answers that say nothing new are stored once in so many seconds."""


@dataclass(frozen=True)
class GroupState:
    """A group, its members as they are stored, and what is to be sent to them now."""

    group: BudgetGroup
    steps: Sequence[tuple[float, float]]
    records: Mapping[str, MemberRecord]
    members: Mapping[str, GroupMember]
    plan: GroupPlan
    metrics: Mapping[str, str]


@dataclass
class WattDivider:
    """Plan and send the caps of all groups, over one loop and its store.

    What is sent is stored first: whatever dies between, no more is in force than what is stored says. Two
    tuners that both believe to lead cannot both change a member: the store takes a change of the latest
    revision only.
    """

    loop: Loop
    price: EnergyPrice
    _fronts: MeasuredFronts = field(init=False)
    _noted: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._fronts = MeasuredFronts(self.loop)

    def now_s(self) -> float:
        """Return the time in seconds since 1970, by which steps are stored."""
        return self.loop.now().timestamp()

    def divide(self) -> None:
        """Send every group's next caps. Only the leader calls it."""
        with self._lock:
            groups = self.loop.store.budgets.groups()
            records = {r.device: r for r in self.loop.store.budgets.members()}
            if not (groups or records):
                return
            self._enlist(groups, records)
            for group in groups:
                state = self.state(group, records)
                for device, schedule in state.plan.schedules.items():
                    with suppress(StaleRevision):  # its host answered meanwhile: next second
                        self._send(records[device], schedule)
                self._note(state)

    def source(self, group: BudgetGroup) -> TimeSeries | None:
        """Return the series that a group names, None where there is none."""
        feed = self.price.others.get(group.series)
        return None if feed is None else feed.series

    def state(self, group: BudgetGroup, records: Mapping[str, MemberRecord]) -> GroupState:
        """Return a group with its members, and what it would send now."""
        own = {n: r for n, r in records.items() if r.group == group.name and not r.released}
        fronts = self._fronts.of(own)
        members = {}
        for name, record in own.items():
            power, front = record.power, fronts[name]
            device = BudgetMember(
                name,
                power.floor_w,
                max(power.floor_w, power.default_w),
                front.points,
                front.needs_w,
                group.priority(name),
            )
            members[name] = GroupMember(device, power, record.sent_s)
        steps = group.steps(self.source(group), self.loop.now())
        plan = plan_group(list(members.values()), steps, self.now_s())
        metrics = {name: fronts[name].metric for name in own}
        return GroupState(group, steps, own, members, plan, metrics)

    def heard(
        self, device: str, revision: int, *, most_w: float = 0.0, member: bool = True
    ) -> MemberRecord | None:
        """Note a host's answer, and return what it is to have; None where it is in no group.

        Once the host of a released device is no member any more, it is forgotten.
        """
        budgets, now_s = self.loop.store.budgets, self.now_s()
        for _ in range(3):
            record = budgets.member(device)
            if record is None:
                return None
            if record.released and not member:
                budgets.forget_member(record)
                return None
            asked = GroupMember(_unused(record), record.power, record.sent_s)
            after = asked.answered(now_s, revision, most_w=most_w, joined=member)
            same = replace(after.power, heard_s=record.power.heard_s) == record.power
            if same and now_s - record.power.heard_s < HEARD_S:
                return record
            with suppress(StaleRevision):
                return budgets.put_member(replace(record, power=after.power, sent_s=after.sent_s))
        return budgets.member(device)

    def release(self, record: MemberRecord) -> None:
        """Let a device go: its host restores its original setting."""
        with suppress(StaleRevision):
            power = record.power.releasing()
            self.loop.store.budgets.put_member(replace(record, power=power, released=True))
            self._wake(record.device)

    def _send(self, record: MemberRecord, schedule: CapSchedule) -> None:
        """Store a schedule, then wake its agent."""
        power = record.power.sending(self._with_knobs(record, schedule))
        sent_s = self.now_s() if record.sent_s is None else record.sent_s
        self.loop.store.budgets.put_member(replace(record, power=power, sent_s=sent_s))
        self._wake(record.device)

    def _wake(self, device: str) -> None:
        self.loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))

    def _with_knobs(self, record: MemberRecord, schedule: CapSchedule) -> CapSchedule:
        knobs = cap_knobs(self.loop.store.devices.get(record.device))
        steps = (replace(s, at_most=shared_cap(knobs, s.cap_w)) for s in schedule.steps)
        return replace(schedule, steps=tuple(steps))

    def _enlist(self, groups: Sequence[BudgetGroup], records: dict[str, MemberRecord]) -> None:
        """Add devices that a group selects, and release those that none does; the first group has them."""
        selected: dict[str, tuple[BudgetGroup, Device]] = {}
        for device in self.loop.store.devices.list():
            group = next((g for g in groups if g.selects(device)), None)
            if group is not None and in_watts(cap_knobs(device)):
                selected[device.id] = group, device
        for name, (group, device) in selected.items():
            if name not in records:
                with suppress(StaleRevision):
                    records[name] = self.loop.store.budgets.put_member(self._record(group, device))
                    self._wake(name)
        for name, record in list(records.items()):
            mine = selected.get(name)
            if not record.released and (mine is None or mine[0].name != record.group):
                if any(g.name == record.group for g in groups) and not self._registered(name):
                    continue  # a device that is forgotten may still be under its cap
                self.release(record)
                records.pop(name)

    def _registered(self, device: str) -> bool:
        return any(d.id == device for d in self.loop.store.devices.list())

    def _record(self, group: BudgetGroup, device: Device) -> MemberRecord:
        knobs = cap_knobs(device)
        power = MemberPower(
            floor_w=sum(k.floor_w or 0.0 for k in knobs),
            default_w=sum(k.default_w or 0.0 for k in knobs),
            reboot_after_s=group.reboot_after_s,
            heard_s=self.loop.presence.last_seen(device).timestamp(),
        )
        return MemberRecord(device=device.id, group=group.name, power=power)

    def _note(self, state: GroupState) -> None:
        """Write an event where what a group cannot keep has changed."""
        text = unkept(state)
        if self._noted.get(state.group.name, "") != text:
            self._noted[state.group.name] = text
            event = Event(
                at=self.loop.now(),
                kind="budget",
                text=f"{state.group.name}: {text or 'all is kept again'}",
            )
            self.loop.changes.note_all([event])


def unkept(state: GroupState) -> str:
    """Return what a group cannot keep now, in words; empty where all is kept."""
    plan, parts = state.plan, []
    if plan.missing_w > LEAST_W:
        parts.append(f"{plan.missing_w:.0f} W are missing")
    if plan.unreachable:
        parts.append(f"unreachable: {', '.join(plan.unreachable)}")
    if plan.division.broken:
        parts.append(f"LIMIT NOT MET: {', '.join(plan.division.broken)}")
    return "; ".join(parts)


def cap_knobs(device: Device) -> Sequence[CapKnob]:
    """Return the knobs that cap a device's power, as its host offers them."""
    return device.cap_knobs


def in_watts(knobs: Sequence[CapKnob]) -> bool:
    """Return whether all caps of a device are in watts, and it has one."""
    return bool(knobs) and all(k.floor_w is not None and k.default_w is not None for k in knobs)


def shared_cap(knobs: Sequence[CapKnob], cap_w: float) -> dict[str, float]:
    """Return a cap as the values of a device's knobs: each gets the same part above its floor."""
    floor_w = sum(k.floor_w or 0.0 for k in knobs)
    span_w = sum((k.default_w or 0.0) - (k.floor_w or 0.0) for k in knobs)
    part = (cap_w - floor_w) / span_w if span_w > 0.0 else 0.0
    part = min(1.0, max(0.0, part))
    return {
        k.name: k.floor * ((k.floor_w + part * ((k.default_w or 0.0) - k.floor_w)) / k.floor_w)
        for k in knobs
        if k.floor_w
    }


def _unused(record: MemberRecord) -> BudgetMember:
    return BudgetMember(record.device, record.power.floor_w, record.power.floor_w)
