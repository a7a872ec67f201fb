"""Members whose only cap is a clock ceiling: counted by measured power, and watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.builders import METRICS, START, device, knob, study, window
from tests.errors import raised
from tests.unit.tuner.service.budgets.test_divider import FakeHost, Rack
from tests.unit.tuner.service.budgets.test_measuring import SweptRack, outcome
from tests.unit.tuner.study.worlds import World
from tuner.core import (
    CEILING_MARGIN,
    CapKnob,
    Estimate,
    InvalidInput,
    Outcome,
    Phase,
    Space,
    TrialState,
)
from tuner.presentation.standing import power_front
from tuner.wire import BudgetOrder, BudgetReport, Change

CLOCK = "gpu.clock_mhz"
CLOCKS = (1000, 1500, 2000, 2500, 3000)
SPACE = Space((knob(CLOCK, CLOCKS, 3000),))
WATTS: Mapping[float, float] = {1000: 100.0, 1500: 130.0, 2000: 170.0, 2500: 220.0, 3000: 280.0}


@dataclass
class ClockHost(FakeHost):
    """A host that caps by clock, and goes to its floor if it draws more than the ceiling counts with."""

    more: float = 1.0
    limit_w: float | None = None
    counted: list[tuple[float, float]] = field(default_factory=list)
    above: tuple[float, dict[str, float]] = 0.0, {}

    def ceiling(self, now_s: float) -> float:
        if not self.group:
            return 3000.0
        return max(1000.0, next((v for at, v in reversed(self.steps) if at <= now_s), 1000.0))

    def cap_w(self, now_s: float) -> float:
        return self.more * WATTS[max(c for c in CLOCKS if c <= self.ceiling(now_s))]

    def watch(self, now_s: float) -> None:
        """Compare the power with the counted watts, as its agent does."""
        counted = next((w for at, w in reversed(self.counted) if at <= now_s), None)
        drawn = self.cap_w(now_s)
        if self.group and counted is not None and drawn > counted:
            if drawn > self.above[0]:
                self.above = drawn, {CLOCK: self.ceiling(now_s)}
            self.steps = [(now_s, 1000.0)]

    def report(self) -> BudgetReport:
        knobs = (CapKnob(CLOCK, 1000.0, default_w=self.limit_w, default=3000.0),)
        return BudgetReport(
            agent="host/1",
            knobs=knobs,
            group=self.group,
            revision=self.revision,
            above_w=self.above[0],
            above_at=self.above[1],
        )

    def obey(self, order: BudgetOrder, now_s: float) -> None:
        if order.kind == "release":
            self.group, self.revision, self.steps, self.counted = "", 0, [], []
        elif order.kind == "caps":
            self.group, self.revision = order.group, order.revision
            self.steps = [(now_s + s.in_s, s.at_most[CLOCK]) for s in order.steps]
            self.counted = [(now_s + s.in_s, s.cap_w) for s in order.steps]
            self.above = 0.0, {}


class ClockRack(Rack):
    """Two devices with a power limit, and one with a clock ceiling."""

    def __init__(self, measured: tuple[int, ...] = CLOCKS, **changes: float) -> None:
        super().__init__(World())
        self.clock = ClockHost(**changes)  # type: ignore[arg-type]
        self.hosts["gpu2"] = self.clock
        self.world.loop.register(device("gpu2", space=SPACE))
        self.measure(measured)
        self.exchange("gpu2")

    def measure(self, clocks: tuple[int, ...], **changes: object) -> None:
        store = self.world.store
        done = study(Phase.BASELINE, (), ("gpu2",), id=f"m{len(clocks)}", space=SPACE)
        store.studies.add(done, "ann", "")
        for clock in clocks:
            phase = Phase.BASELINE if clock == 3000 else Phase.TUNING
            trial = store.trials.begin(done.id, {CLOCK: clock}, phase, "", START)
            power = {"power_w": Estimate.of_mean(WATTS[clock], 1.0, 10)}
            seen = window(WATTS[clock] / clock, 1e6 / clock, rate=clock, extra=power, context={})
            ended = Outcome(state=TrialState.COMPLETED, measurement=replace(seen, **changes))  # type: ignore[arg-type]
            store.trials.end(done.id, trial.number, ended, START)
        store.studies.revise(
            replace(store.studies.get(done.id), phase=Phase.STOPPED), "ann", "", START
        )

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            super().pass_s(1)
            self.clock.watch(self.now_s)


def test_a_clock_ceiling_is_divided_by_measured_power_and_is_named() -> None:
    rack = ClockRack()
    rack.set(560.0, measure=False)
    rack.pass_s(10)
    assert rack.drawn_w() <= 560.0
    view = {m.device: m for m in rack.operations.budget("rack").members}
    assert [m.by_clock for m in view.values()] == [False, False, True]
    assert "not a hard cap" in power_front(view["gpu2"])
    assert view["gpu2"].floor_w == pytest.approx(CEILING_MARGIN * WATTS[1000])
    assert rack.clock.ceiling(rack.now_s) > 1000.0
    assert rack.clock.cap_w(rack.now_s) * CEILING_MARGIN <= view["gpu2"].cap_w + 1e-6
    rack.event(watts=320.0)
    rack.pass_s(5)
    assert rack.clock.ceiling(rack.now_s) == 1000.0
    assert rack.drawn_w() <= 320.0


@pytest.mark.parametrize("measured", [(), (2500,), (1000, 1500)])
def test_without_measured_power_it_is_refused_by_name(measured: tuple[int, ...]) -> None:
    rack = ClockRack(measured)
    with raised(InvalidInput, "gpu2", "power-sweep"):
        rack.set(900.0)


@pytest.mark.parametrize("wrong", [{"throttled": ("thermal",)}, {"sources": {"power cap": "2000"}}])
def test_windows_that_something_else_kept_low_do_not_count(wrong: Mapping[str, object]) -> None:
    rack = ClockRack(())
    rack.measure(CLOCKS, **wrong)
    with raised(InvalidInput, "gpu2"):
        rack.set(900.0)


def test_a_member_that_draws_more_goes_to_its_floor_and_counts_with_that_power() -> None:
    rack = ClockRack()
    rack.set(620.0, measure=False)
    rack.pass_s(10)
    before = rack.clock.ceiling(rack.now_s)
    assert before > 1500.0
    rack.clock.more = 1.3
    rack.pass_s(1)
    assert rack.clock.ceiling(rack.now_s) == 1000.0
    rack.pass_s(30)
    texts = [e.text for e in rack.world.store.events.list() if "drew" in e.text]
    assert 1 <= len(texts) <= len(CLOCKS)
    assert "gpu2" in texts[0]
    assert rack.drawn_w() <= 620.0
    (view,) = (m for m in rack.operations.budget("rack").members if m.device == "gpu2")
    assert rack.clock.cap_w(rack.now_s) <= view.cap_w
    assert rack.operations.budget("rack").may_draw_w > 600.0, "its watts are in use"


def test_a_member_that_draws_more_at_its_floor_takes_it_from_the_others() -> None:
    rack = ClockRack()
    rack.set(320.0, measure=False)
    rack.pass_s(10)
    rack.clock.more = 1.5
    rack.pass_s(10)
    view = rack.operations.budget("rack")
    assert {m.device: m.floor_w for m in view.members}["gpu2"] == pytest.approx(
        CEILING_MARGIN * 150.0
    )
    assert view.missing_w == pytest.approx(CEILING_MARGIN * 150.0 + 200.0 - 320.0)
    rack.event(watts=1000.0)
    rack.operations.release_budget("rack", Change())
    rack.set(900.0, measure=False)
    rack.pass_s(10)
    assert rack.drawn_w() <= 900.0


def test_a_limit_that_the_driver_keeps_lets_the_device_join_and_be_measured() -> None:
    rack = ClockRack((), limit_w=300.0)
    rack.set(600.0, measure=False)
    rack.pass_s(5)
    (view,) = (m for m in rack.operations.budget("rack").members if m.device == "gpu2")
    assert (view.floor_w, view.may_draw_w) == (300.0, 300.0)


def test_the_front_of_a_clock_member_is_measured_between_floor_and_original() -> None:
    world = World()
    rack = SweptRack(world)
    rack.hosts = {"gpu0": (host := ClockHost(limit_w=300.0))}
    for name in ("gpu1", "gpu2"):
        world.store.devices.forget(name)
    world.loop.register(device("gpu0", space=SPACE, metrics=METRICS))
    rack.exchange("gpu0")
    rack.set(600.0)
    for _ in range(200):
        rack.pass_s(1)
        order = world.loop.order("gpu0", rack.poll("gpu0"))
        if getattr(order, "setting", None):
            done = outcome(WATTS[min(order.setting[CLOCK], int(host.ceiling(rack.now_s)))])  # type: ignore[union-attr,index]
            world.report(order, done, "gpu0")  # type: ignore[arg-type]
    (swept,) = rack.sweeps()
    tried = {t.setting[CLOCK] for t in world.store.trials.list(swept.id)}
    assert tried == set(CLOCKS)
    (view,) = rack.operations.budget("rack").members
    assert view.front == "throughput_per_s"
    assert view.floor_w == pytest.approx(CEILING_MARGIN * WATTS[1000])
