"""Division of each group's watts: the leader's work every second, and the answers to hosts."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from policies.budget.division import BudgetMember
from policies.budget.fronts import PowerFront
from policies.budget.steps import GroupMember, plan_group, without_raises
from tuner.core import (
    CEILING_MARGIN,
    BudgetGroup,
    CapSchedule,
    CeilingPower,
    Device,
    Event,
    MemberPower,
    MemberRecord,
    Notice,
    StaleRevision,
    TimeSeries,
    Topic,
)
from tuner.rows import StoredRows
from tuner.service.budgets.measuring import FrontMeasuring, MeasuredFronts
from tuner.service.budgets.state import GroupState, MemberTimes, limits_not_met, unkept
from tuner.service.energy_price import EnergyPrice
from tuner.study.loop import Loop
from tuner.wire import BudgetOrder, BudgetReport, CapOrder, readable

log = logging.getLogger(__name__)

HEARD_S = 5.0
"""Seconds for which a host's unchanged report is not stored again, and the result of `capped` is kept."""


@dataclass
class WattDivider:
    """Plans and sends the caps of all groups, over one loop and its store.

    A schedule is stored before it is sent: if a process dies in between, the caps in force are never higher
    than the stored ones. Two tuners that both believe to lead cannot both change a member: the store
    accepts a change of the latest revision only.
    """

    loop: Loop
    price: EnergyPrice
    _times: MemberTimes = field(init=False)
    _fronts: MeasuredFronts = field(init=False)
    _measuring: FrontMeasuring = field(init=False)
    _capped: Mapping[str, str] = field(default_factory=dict)
    _capped_due_s: float = -math.inf
    _noted: dict[str, str] = field(default_factory=dict)
    _default_w: dict[str, float] = field(default_factory=dict)
    """The watts without a cap of each member, as last read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._times = MemberTimes(self.loop.steady)
        self._fronts = MeasuredFronts(self.loop)
        self._measuring = FrontMeasuring(self.loop, self._fronts)

    def now_s(self) -> float:
        """Return the steady time of stored steps: seconds since 1970, by the wall clock of the start."""
        return self.loop.steady()

    def divide(self) -> None:
        """Send the next caps of every group. Only the leader calls it, every second."""
        with self._lock:
            groups = self.loop.store.budgets.groups()
            members = self.loop.store.budgets.members()
            records = {r.device: r for r in members}
            rows = self.loop.changes.rows("the membership")
            rows.unread(members, lambda *_: None)
            self.loop.changes.rows("dividing the watts").unread(groups, lambda *_: None)
            if not (groups or records):
                return
            self._times.look(records.values())
            devices = {d.id: d for d in self.loop.store.devices.list()}
            for name in list(records):
                rows.each(name, partial(self._enlist, name, groups, devices, records), _nothing)
            rows = self.loop.changes.rows("dividing the watts")
            states = {
                g.name: rows.each(g.name, partial(self._divide, g, records, members), _nothing)
                for g in groups
            }
            rows = self.loop.changes.rows("measuring the power")
            for name, state in states.items():  # last: a failure here holds no caps back
                if state is not None:
                    rows.each(name, partial(self._measuring.go_on, state), _nothing)

    def _divide(
        self,
        group: BudgetGroup,
        records: Mapping[str, MemberRecord],
        members: StoredRows[MemberRecord],
    ) -> GroupState | None:
        """Send a group's caps, and return its state; raise no cap beside a member that cannot be read."""
        lost_w = self.lost_w(group, members)
        state = self.state(group, records, lost_w)
        if lost_w > 0.0:
            plan = without_raises(state.plan, state.members, self.now_s())
            state = replace(state, plan=plan)
        for device, schedule in state.plan.schedules.items():
            with suppress(StaleRevision):  # its host answered meanwhile: sent next time
                self._send(records[device], schedule)
        self._note(state)
        return state

    def source(self, group: BudgetGroup) -> TimeSeries | None:
        """Return the series that a group names; None if tuner.toml has no series of that name."""
        feed = self.price.others.get(group.series)
        return None if feed is None else feed.series

    def lost_w(self, group: BudgetGroup, members: StoredRows[MemberRecord]) -> float:
        """Return the most watts that a group's members draw whose membership cannot be read.

        Infinite, so that the others go to their floors, if this process never read one of them.
        """
        self._default_w |= {r.device: r.default_w for r in members}
        devices = self.loop.store.devices.list() if members.unread else ()
        lost = [d.id for d in devices if d.id in members.unread and group.selects(d)]
        return math.fsum(self._default_w.get(name, math.inf) for name in lost)

    def state(
        self, group: BudgetGroup, records: Mapping[str, MemberRecord], lost_w: float = 0.0
    ) -> GroupState:
        """Return a group with its members, and the plan of the caps to send beside `lost_w`."""
        own = {n: r for n, r in records.items() if r.group == group.name and r.active}
        own = {name: self._times.of(record) for name, record in own.items()}
        fronts = self._fronts.of(own)
        members = {}
        for name, record in own.items():
            power, front = record.power, fronts[name]
            over = _over(record, front.power)
            needs_w = front.power.needs_w
            device = BudgetMember(
                name,
                power.floor_w,
                max(power.floor_w, power.default_w),
                tuple((over * watts, rate) for watts, rate in front.power.points),
                None if needs_w is None else over * needs_w,
                group.priority(name),
                lent=self._measuring.lent(name),
            )
            members[name] = GroupMember(device, power, record.sent_s)
        steps = group.steps(self.source(group), self.loop.now())
        lead_s = self.loop.steady.lead_s()  # hours are by the wall clock, durations are not
        outside = {n: r.default_w for n, r in records.items() if r.outside == group.name}
        taken_w = math.fsum(outside.values())
        due = [
            (at_s - lead_s, max(0.0, w - min(taken_w, group.reserve * w) - lost_w))
            for at_s, w in steps
        ]
        plan = plan_group(list(members.values()), due, self.now_s())
        if any(map(self._times.unheard, own)):
            plan = without_raises(plan, members, self.now_s())
        metrics = {name: fronts[name].power.metric for name in own}
        measuring = {name: study for name in own if (study := fronts[name].study)}
        return GroupState(group, steps, own, members, plan, metrics, measuring, outside)

    def shown(self, group: BudgetGroup, members: StoredRows[MemberRecord]) -> GroupState:
        """Return a group with the plan of its caps beside members that cannot be read."""
        return self.state(group, {r.device: r for r in members}, self.lost_w(group, members))

    def capped(self) -> Mapping[str, str]:
        """Return, by device, why the cap of a member does not keep its limits, with the watts."""
        now_s = self.loop.monotonic()
        if now_s >= self._capped_due_s:
            groups = self.loop.store.budgets.groups()
            members = self.loop.store.budgets.members() if groups else StoredRows[MemberRecord]()
            rows = self.loop.changes.rows("the limits under a budget")
            unmet = [
                rows.each(g.name, partial(self._unmet, g, members), lambda _: {}) for g in groups
            ]
            self._capped = {name: why for one in unmet for name, why in one.items()}
            self._capped_due_s = now_s + HEARD_S
        return self._capped

    def _unmet(self, group: BudgetGroup, members: StoredRows[MemberRecord]) -> Mapping[str, str]:
        """Return why caps do not keep the limits of a group's members, by device."""
        return limits_not_met(self.shown(group, members))

    def answer(self, device: str, report: BudgetReport) -> BudgetOrder:
        """Store a host's report, and return the order for the host."""
        if report.unable:  # it keeps no cap: it counts as silent
            return BudgetOrder()
        record = self._heard(device, report)
        if record is None or not record.group:
            return BudgetOrder()
        if record.released:
            return BudgetOrder(kind="release", group=report.group or record.group)
        latest = record.power.latest
        if report.group == record.group and latest.revision <= report.revision:
            return BudgetOrder()
        rows = self.loop.changes.rows("the order of caps")
        order = partial(_order, record, latest, self.now_s())
        return rows.each(device, order, lambda _: BudgetOrder())

    def _heard(self, device: str, report: BudgetReport) -> MemberRecord | None:
        """Store a host's report of its membership, and return the record after it."""
        budgets, now_s = self.loop.store.budgets, self.now_s()
        for _ in range(3):
            record = budgets.member(device)
            if record is None or record.knobs != report.knobs:
                after = _offered(device, report, record, now_s)
            elif not record.group:
                return record
            elif record.released and not report.group:
                after = _offered(device, report, replace(record, group="", released=False), now_s)
            else:
                after = _answered(record, report, now_s)
                if report.above_w > 0.0 and record.active and record.by_clock:
                    after = self._exceeded(after, report)
                same = replace(after.power, heard_s=record.power.heard_s) == record.power
                fresh = 0.0 <= now_s - record.power.heard_s < HEARD_S
                if same and fresh and not self._times.unheard(device):
                    return record
            with suppress(StaleRevision):
                return budgets.put_member(after)
        return budgets.member(device)

    def _exceeded(self, record: MemberRecord, report: BudgetReport) -> MemberRecord:
        """Return a member sent to its floor, since it drew more than its clock ceilings count with."""
        if report.revision < record.power.revision:  # its host has not acknowledged the floor yet
            return record
        self.loop.changes.note(
            "budget",
            f"{record.group}: {record.device} drew {report.above_w:.0f} W, more than its clock ceiling "
            f"counts with; it is at its floor until the watts are divided again",
        )
        measured = self._measured(record)
        return record.exceeding(report.above_w, report.above_at, measured, self.now_s())

    def valued(self, record: MemberRecord) -> MemberRecord:
        """Return a device with the watts of its clock ceilings, as far as its power was measured."""
        return record.with_ceilings(self._measured(record)) if record.by_clock else record

    def _measured(self, record: MemberRecord) -> Sequence[CeilingPower]:
        """Return the mean watts of a device's measured windows, with the values of its cap knobs."""
        names = [knob.name for knob in record.knobs]
        measured = []
        for setting, watts in self._fronts.of([record.device])[record.device].drew:
            values = {n: float(v) for n in names if isinstance(v := setting.get(n), int | float)}
            if len(values) == len(names):
                measured.append(CeilingPower(values, watts))
        return measured

    def release(self, record: MemberRecord) -> None:
        """Release a device from its group: its host restores its original setting."""
        with suppress(StaleRevision):
            self._measuring.end([record.device])
            power = record.power.releasing()
            self.loop.store.budgets.put_member(replace(record, power=power, released=True))
            self._wake(record.device)

    def _send(self, record: MemberRecord, schedule: CapSchedule) -> None:
        """Store a schedule, then wake the device's agent."""
        steps = tuple(replace(s, at_most=record.at_most(s.cap_w)) for s in schedule.steps)
        power = record.power.sending(replace(schedule, steps=steps))
        sent_s = self.now_s() if record.sent_s is None else record.sent_s
        self.loop.store.budgets.put_member(replace(record, power=power, sent_s=sent_s))
        self._wake(record.device)

    def _wake(self, device: str) -> None:
        """Wake the waiting request of a device's agent."""
        self.loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))

    def _enlist(
        self,
        name: str,
        groups: StoredRows[BudgetGroup],
        devices: Mapping[str, Device],
        records: dict[str, MemberRecord],
    ) -> None:
        """Add a device to the first group that selects it; release it from any other group."""
        device, record = devices.get(name), records[name]
        if (valued := self.valued(record)) is not record:
            with suppress(StaleRevision):
                record = records[name] = self.loop.store.budgets.put_member(valued)
        if device is None or record.group in groups.unread:
            return  # forgotten, or its group cannot be read: perhaps still under its cap
        group = next((g for g in groups if g.selects(device) and record.in_watts), None)
        if record.active and (group is None or group.name != record.group):
            self.release(record)
            records.pop(name)
        elif (after := _placed(record, group)) != record:
            with suppress(StaleRevision):
                records[name] = self.loop.store.budgets.put_member(after)

    def _note(self, state: GroupState) -> None:
        """Note an event if the faults of a group's budget have changed."""
        text = unkept(state)
        if self._noted.get(state.group.name, "") != text:
            self._noted[state.group.name] = text
            event = Event(
                at=self.loop.now(),
                kind="budget",
                text=f"{state.group.name}: {text or 'all is kept again'}",
            )
            self.loop.changes.note_all([event])


def _nothing(_why: str) -> None:
    """Return None as the state of a group that failed: its members keep the caps sent before."""


def _placed(record: MemberRecord, group: BudgetGroup | None) -> MemberRecord:
    """Return a device in the group that selects it, or outside of it until an operator admits it."""
    if group is None or (record.group and not record.active):
        return replace(record, outside="")
    if not record.let_in(group):
        return replace(record, outside=group.name)
    if record.group:
        power = replace(record.power, reboot_after_s=group.reboot_after_s)
        return replace(record, power=power, admitted=group.name, outside="")
    power = _fresh(record, group.reboot_after_s, record.power.heard_s)
    return replace(record, group=group.name, power=power, sent_s=None, outside="")


def _fresh(record: MemberRecord, reboot_after_s: float, heard_s: float) -> MemberPower:
    """Return the power record of a device that has not joined yet."""
    return MemberPower(
        floor_w=record.floor_w,
        default_w=record.default_w,
        reboot_after_s=reboot_after_s,
        heard_s=heard_s,
    )


def _over(record: MemberRecord, front: PowerFront) -> float:
    """Return the factor from measured to counted watts: clock ceilings count with a margin."""
    if not record.by_clock:
        return 1.0
    return max([CEILING_MARGIN, *(record.default_w / watts for watts, _ in front.points[-1:])])


def _offered(
    device: str, report: BudgetReport, record: MemberRecord | None, now_s: float
) -> MemberRecord:
    """Return a device's record with the caps that its host offers now."""
    if record is None:
        power = MemberPower(floor_w=0.0, default_w=0.0, reboot_after_s=0.0, heard_s=now_s)
        record = MemberRecord(device=device, knobs=report.knobs, power=power)
    after = replace(record, knobs=report.knobs)
    fresh = _fresh(after, record.power.reboot_after_s, now_s)
    if not record.group:
        return replace(after, power=fresh, sent_s=None)
    if not after.in_watts:  # of unknown watts: it may draw as much as before
        return after
    power = replace(record.power, floor_w=fresh.floor_w, default_w=fresh.default_w)
    return replace(after, power=power)


def _answered(record: MemberRecord, report: BudgetReport, now_s: float) -> MemberRecord:
    """Return a member's record after its host's answer."""
    device = BudgetMember(record.device, record.power.floor_w, record.power.floor_w)
    after = GroupMember(device, record.power, record.sent_s).answered(
        now_s,
        report.revision,
        most_w=report.most_w,
        joined=report.group == record.group and not record.released,
    )
    return replace(record, power=after.power, sent_s=after.sent_s)


@readable
def _order(record: MemberRecord, schedule: CapSchedule, now_s: float) -> BudgetOrder:
    """Return the order for a schedule from now on, with times in seconds from its receipt."""
    present = schedule.step(now_s)
    steps = [] if present is None else [replace(present, at_s=now_s)]
    steps += [step for step in schedule.steps if step.at_s > now_s]
    if not steps:
        return BudgetOrder()
    if present is None:
        steps[0] = replace(steps[0], at_s=now_s)
    return BudgetOrder(
        kind="caps",
        group=record.group,
        revision=schedule.revision,
        steps=tuple(
            CapOrder(in_s=s.at_s - now_s, cap_w=s.cap_w, at_most=dict(s.at_most)) for s in steps
        ),
    )
