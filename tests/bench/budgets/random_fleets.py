"""Random groups with failures of hosts, network and tuner: the caps in force, second by second.

Hosts fail like real ones: messages get lost, are late and overtake each other, an answer may be old,
agents and tuners die, and a rebooting host has its driver's default limit until its actuator has
started. A reboot takes longer than the group's `reboot_after_s`, as operators must ensure. Some hosts
are capped by clock only: they count with measured power, and may draw more at any moment, as under
another workload. Their agents, if alive, then go to the floor.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

from policies.budget.division import BudgetMember
from policies.budget.steps import GroupMember, GroupPlan, plan_group
from tuner.core import (
    LATE_S,
    CapKnob,
    CapSchedule,
    CeilingPower,
    MemberPower,
    MemberRecord,
)

REBOOT_AFTER_S = 60.0
LONGEST_DELAY_S = 20.0
AHEAD_S = 300.0
FAILING_S, CALM_S = 150, 170
"""Seconds with failures, then seconds without; after these all watts must be in use again."""
CLOCK, CLOCKS = "cpu.max_mhz", (1000.0, 1500.0, 2000.0, 2500.0, 3000.0)
GUARD_S = 3
"""The seconds in which an agent sees that its device draws more than counted: windows of two seconds."""


@dataclass
class RandomHost:
    """A member's host: the cap on its hardware, and the messages on their way to and from it."""

    device: BudgetMember
    default_w: float
    rng: random.Random
    schedule: CapSchedule | None = None
    joined: bool = False
    cut_until_s: float = 0.0
    dead_until_s: float = 0.0
    rebooting: tuple[float, float] | None = None
    inbox: list[tuple[float, CapSchedule]] = field(default_factory=list)
    outbox: list[tuple[float, int, bool, float, float]] = field(default_factory=list)
    measured: tuple[CeilingPower, ...] = ()
    more: float = 1.0
    above: tuple[float, float] = 0.0, 0.0
    over_s: int = 0

    def ceiling(self, now_s: float) -> float:
        """Return the clock ceiling on the hardware."""
        if not self.joined or (self.rebooting is not None and now_s >= self.rebooting[0]):
            return CLOCKS[-1]
        step = None if self.schedule is None else self.schedule.step(now_s)
        return CLOCKS[0] if step is None else max(CLOCKS[0], step.at_most.get(CLOCK, 0.0))

    def drawn_w(self, now_s: float) -> float:
        """Return the power in watts; under a clock ceiling it may exceed the counted watts."""
        if not self.measured:
            return self.cap_w(now_s)
        at = self.ceiling(now_s)
        return self.more * next(m.watts for m in self.measured if m.at_most[CLOCK] >= at)

    def guard(self, now_s: float) -> None:
        """Go to the floor if the device draws more than counted and its agent is alive."""
        if not self.measured or self.schedule is None or self.rebooting is not None:
            return
        step, at = self.schedule.step(now_s), self.ceiling(now_s)
        if step is None or self.drawn_w(now_s) <= step.cap_w:
            self.over_s = 0
            return
        self.over_s += at > CLOCKS[0]
        if self.over_s >= GUARD_S or at == CLOCKS[0]:
            self.over_s = 0
            self.above = max(self.above, (self.drawn_w(now_s), at))
            down = (replace(s, at_most={CLOCK: CLOCKS[0]}) for s in self.schedule.steps)
            self.schedule = replace(self.schedule, steps=tuple(down))

    def cap_w(self, now_s: float) -> float:
        """Return the cap on the hardware, or the counted watts of its clock ceiling."""
        if not self.joined or (self.rebooting is not None and now_s >= self.rebooting[0]):
            return self.default_w
        step = None if self.schedule is None else self.schedule.step(now_s)
        return max(self.device.floor_w, 0.0 if step is None else step.cap_w)

    def answers(self, now_s: float) -> bool:
        """Return whether its agent is alive and reaches the tuner."""
        return self.rebooting is None and now_s >= max(self.cut_until_s, self.dead_until_s)

    def fail(self, now_s: float) -> None:
        """Lose the network, the agent or the power."""
        kind = self.rng.choice(["network", "agent", "reboot"])
        if kind == "network":
            self.cut_until_s = now_s + self.rng.choice([2.0, 8.0, 100.0])
        elif kind == "agent":
            self.dead_until_s = now_s + self.rng.choice([2.0, 8.0, 100.0])
            self.inbox.clear()
        elif self.rebooting is None:
            off_s = now_s + REBOOT_AFTER_S + LONGEST_DELAY_S + LATE_S + self.rng.uniform(0.0, 30.0)
            self.rebooting = (off_s, off_s + self.rng.uniform(1.0, 30.0))
            self.inbox.clear()

    def act(self, now_s: float, *, slow: bool) -> None:
        """Restart if due, process the arrived messages, and answer."""
        if self.rebooting is not None and now_s >= self.rebooting[1]:
            # The journal has its membership and its floor; the caps are sent again.
            self.rebooting, self.schedule, self.above = None, None, (0.0, 0.0)
        if not self.answers(now_s):
            return
        for message in [m for m in self.inbox if m[0] <= now_s]:
            self.inbox.remove(message)
            self.joined = True
            if self.schedule is None or message[1].revision > self.schedule.revision:
                self.schedule, self.above = message[1], (0.0, 0.0)
        self.guard(now_s)
        late_s = self.rng.choice([0.0, 1.0, 3.0, LONGEST_DELAY_S]) if slow else 0.0
        revision = 0 if self.schedule is None else self.schedule.revision
        self.outbox.append((now_s + late_s, revision, self.joined, *self.above))


@dataclass
class RandomFleet:
    """A running group: its hosts, the tuner's state of them, and its budget over time."""

    rng: random.Random
    hosts: dict[str, RandomHost]
    members: dict[str, GroupMember]
    budget: list[tuple[float, float]]
    records: dict[str, MemberRecord] = field(default_factory=dict)
    now_s: float = 1000.0
    away_until_s: float = 0.0
    surged_s: float = 0.0
    plan: GroupPlan | None = None

    @classmethod
    def made(cls, seed: int) -> RandomFleet:
        """Return the group of a seed; its budget covers the floors."""
        rng = random.Random(seed)
        hosts, members = {}, {}
        for n in range(rng.randint(1, 6)):
            floor, name = float(rng.randint(50, 150)), f"m{n}"
            most = floor + rng.randint(50, 250)
            front = tuple((most * part, part**0.6) for part in (0.4, 0.6, 0.8, 1.0))
            device = BudgetMember(
                name, floor, most, front if rng.random() < 0.8 else (), None, rng.randint(0, 2)
            )
            hosts[name] = RandomHost(device, most + rng.choice([0.0, 50.0]), rng)
            power = MemberPower(
                floor_w=floor,
                default_w=hosts[name].default_w,
                reboot_after_s=REBOOT_AFTER_S,
                heard_s=1000.0,
            )
            members[name] = GroupMember(device, power)
        fleet = cls(rng, hosts, members, [])
        for name in hosts:
            if rng.random() < 0.25:
                fleet.by_clock(name)
        fleet.budget = [(1000.0, fleet.some_watts())]
        return fleet

    def by_clock(self, name: str) -> None:
        """Give a host a clock ceiling with measured power, instead of a power limit."""
        host, member = self.hosts[name], self.members[name]
        floor_w, most_w = host.device.floor_w, host.device.most_w
        watts = sorted([floor_w, most_w, *(self.rng.uniform(floor_w, most_w) for _ in CLOCKS[2:])])
        host.measured = tuple(
            CeilingPower({CLOCK: mhz}, w) for mhz, w in zip(CLOCKS, watts, strict=True)
        )
        knob = CapKnob(CLOCK, CLOCKS[0], default=CLOCKS[-1])
        record = MemberRecord(device=name, knobs=(knob,), power=member.power)
        self.know(record.with_ceilings(host.measured))
        host.device = self.members[name].device
        host.default_w = host.device.most_w

    def know(self, record: MemberRecord) -> None:
        """Update the tuner's state of a member by clock."""
        self.records[record.device] = record
        former = self.members[record.device].device
        over = record.default_w / former.most_w
        device = replace(
            former,
            floor_w=record.floor_w,
            most_w=record.default_w,
            front=tuple((over * watts, rate) for watts, rate in former.front),
        )
        self.members[record.device] = GroupMember(device, record.power, record.sent_s)

    def some_watts(self) -> float:
        """Return a budget between the floors and the usable maximum; sometimes one below the floors."""
        floors = math.fsum(h.device.floor_w for h in self.hosts.values())
        most = math.fsum(h.device.most_w for h in self.hosts.values())
        low = -0.2 if self.rng.random() < 0.1 else 0.02
        return floors + self.rng.uniform(low, 1.0) * (most - floors)

    def disturb(self) -> None:
        """Cause a failure, or a change of the budget, now or at an announced time."""
        if self.rng.random() < 0.06:
            self.rng.choice(list(self.hosts.values())).fail(self.now_s)
        if self.rng.random() < 0.02:
            surging = [self.hosts[name] for name in self.records]
            for host in surging[:1]:
                host.more = self.rng.uniform(0.8, 1.4)
        if self.rng.random() < 0.02:
            self.away_until_s = self.now_s + self.rng.choice([3.0, 30.0])
        if self.rng.random() < 0.03 and self.now_s >= self.away_until_s:
            at_s = self.now_s + self.rng.choice([0.0, 0.0, 20.0, 60.0])
            self.budget = [(t, w) for t, w in self.budget if t < at_s]
            self.budget.append((at_s, self.some_watts()))

    def work(self, *, slow: bool) -> None:
        """Let the tuner process reports and divide, if it is up, and let each host act."""
        if self.now_s >= self.away_until_s:
            self._hear()
            self._divide(slow=slow)
        else:  # answers to an absent tuner get lost
            for host in self.hosts.values():
                host.outbox = [answer for answer in host.outbox if answer[0] > self.now_s]
        for host in self.hosts.values():
            host.act(self.now_s, slow=slow)

    def _hear(self) -> None:
        for name, host in self.hosts.items():
            for answer in sorted(host.outbox):
                if answer[0] > self.now_s:
                    continue
                host.outbox.remove(answer)
                member, (_, revision, joined, above_w, above_at) = self.members[name], answer
                if joined or not member.power.member:
                    self.members[name] = member.answered(self.now_s, revision, joined=joined)
                    if above_w:
                        self._exceeded(name, revision, above_w, above_at)

    def _exceeded(self, name: str, revision: int, watts: float, at: float) -> None:
        member, host = self.members[name], self.hosts[name]
        record = replace(self.records[name], power=member.power, sent_s=member.sent_s)
        latest = max(s.revision for s in (record.power.acknowledged, *record.power.sent))
        if revision == latest:
            self.surged_s = self.now_s  # a higher draw at its floor is news, like a step
            self.know(record.exceeding(watts, {CLOCK: at}, host.measured, self.now_s))

    def _divide(self, *, slow: bool) -> None:
        present = max(n for n, (at, _) in enumerate(self.budget) if at <= self.now_s)
        ahead = [(at, w) for at, w in self.budget[present:] if at <= self.now_s + AHEAD_S]
        self.plan = plan_group(list(self.members.values()), ahead, self.now_s)
        for name, schedule in self.plan.schedules.items():
            member = self.members[name]
            sent_s = member.sent_s if member.power.sent else self.now_s
            if name in self.records:
                at_most = self.records[name].at_most
                by_clock = (replace(s, at_most=at_most(s.cap_w)) for s in schedule.steps)
                schedule = replace(schedule, steps=tuple(by_clock))
            power = member.power.sending(schedule)
            self.members[name] = replace(member, power=power, sent_s=sent_s)
        for name, member in self.members.items():
            host = self.hosts[name]
            if member.power.sent and host.answers(self.now_s) and self.rng.random() < 0.8:
                late_s = self.rng.choice([0.0, 1.0, 2.0, LONGEST_DELAY_S]) if slow else 0.0
                host.inbox.append((self.now_s + late_s, member.power.sent[-1]))


@dataclass(frozen=True)
class FleetOutcome:
    """The result of a random fleet: unnamed watts above its budget, broken floors, unused watts.

    `drawn_above_w` is the power above the budget at the end beyond the reported missing watts: members
    by clock may draw more than counted until their agents have seen it.
    """

    above_w: float
    below_floor: int
    unused_w: float
    drawn_above_w: float


def play(seed: int) -> FleetOutcome:
    """Play one random fleet through failures and then a calm time."""
    fleet = RandomFleet.made(seed)
    above, below, settled_s = 0.0, 0, fleet.now_s + LATE_S
    for second in range(FAILING_S + CALM_S):
        fleet.now_s += 1.0
        if second < FAILING_S:
            fleet.disturb()
        fleet.work(slow=second < FAILING_S)
        if fleet.now_s < fleet.away_until_s:
            settled_s = fleet.away_until_s + LATE_S  # a tuner's start counts
        drawn = math.fsum(host.cap_w(fleet.now_s) for host in fleet.hosts.values())
        below += sum(host.cap_w(fleet.now_s) < host.device.floor_w for host in fleet.hosts.values())
        if fleet.now_s > max(settled_s, fleet.surged_s + LATE_S) and fleet.plan is not None:
            named = fleet.plan.missing_w
            above = max(above, drawn - named - _in_force(fleet))
    drawn = math.fsum(host.cap_w(fleet.now_s) for host in fleet.hosts.values())
    usable = math.fsum(m.device.most_w for m in fleet.members.values())
    floors = math.fsum(m.device.floor_w for m in fleet.members.values())
    goal = max(floors, min(usable, _in_force(fleet)))
    really = math.fsum(host.drawn_w(fleet.now_s) for host in fleet.hosts.values())
    named = fleet.plan.missing_w if fleet.plan is not None else 0.0
    return FleetOutcome(above, below, goal - drawn, max(0.0, really - named - _in_force(fleet)))


def _in_force(fleet: RandomFleet) -> float:
    """Return the watts that must be kept now: the maximum of the last `LATE_S` seconds."""
    since = fleet.now_s - LATE_S
    first = max((n for n, (at, _) in enumerate(fleet.budget) if at <= since), default=0)
    return max(w for at, w in fleet.budget[first:] if at <= fleet.now_s)
