"""Members without a front: measured one after the other within the group's watts."""

from __future__ import annotations

import pytest

from policies.budget.sweep import PowerSweep
from tests.builders import METRICS, applied, device, setting, window
from tests.unit.tuner.service.budgets.test_divider import FakeHost, Rack
from tests.unit.tuner.study.worlds import World
from tuner.core import Estimate, Knob, Outcome, Phase, Space, Study, TrialState
from tuner.service.budgets import measuring
from tuner.service.operations import Operations
from tuner.wire import Assignment, Change, Poll

LIMIT = "gpu.power_limit_w"
SPACE = Space(
    (Knob(LIMIT, tuple(range(100, 351, 10)), 350), Knob("gpu.clock_mhz", (800, 1000), 1000))
)


def outcome(cap_w: float) -> Outcome:
    """Return a window under a cap: throughput rises with it."""
    rate = 100.0 * (cap_w / 350.0) ** 0.5
    power = {"power_w": Estimate.of_mean(cap_w, 0.01 * cap_w, 10)}
    measured = window(cap_w / rate, 5000.0 / rate, rate=rate, extra=power, context={})
    return Outcome(state=TrialState.COMPLETED, measurement=measured)


class SweptRack(Rack):
    """A rack whose devices can set their power limit, and whose agents run their assignments."""

    def __init__(self, world: World, **changes: object) -> None:
        super().__init__(world)
        world.loop.policies = lambda _: PowerSweep()
        for name in self.hosts:
            world.loop.register(device(name, space=SPACE, **changes))
        self.highest_w: dict[str, float] = {}
        self.tried: list[tuple[str, float]] = []

    def agent(self, name: str) -> None:
        """Poll as an agent; try a setting within the cap, and refuse one above it."""
        order = self.world.loop.order(name, self.poll(name))
        if not isinstance(order, Assignment) or LIMIT not in order.setting:
            return
        cap_w, wanted = self.hosts[name].cap_w(self.now_s), float(str(order.setting[LIMIT]))
        baseline = wanted == 350.0 and order.setting["gpu.clock_mhz"] == 1000
        if wanted > cap_w and not baseline:
            self.world.report(order, Outcome(state=TrialState.CONTAMINATED, reason="cap"), name)
            return
        self.tried.append((name, min(wanted, cap_w)))
        self.world.report(order, outcome(min(wanted, cap_w)), name)

    def poll(self, name: str) -> Poll:
        return Poll(agent="host/1", applied=applied(name, at=setting()))

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            self.pass_s(1)
            assert self.drawn_w() <= 600.0 or not self.operations.budgets()
            for name in self.hosts.keys() - self.gone:
                self.agent(name)

    def sweeps(self) -> list[Study]:
        return [s for s in self.world.store.studies.list() if s.policy == "power-sweep"]


@pytest.fixture
def rack() -> SweptRack:
    return SweptRack(World())


def test_each_member_is_measured_once_within_the_budget_and_then_valued(rack: SweptRack) -> None:
    rack.set(600.0)
    rack.live(200)
    studies = rack.sweeps()
    assert [s.devices for s in studies] == [("gpu0",), ("gpu1",), ("gpu2",)]
    assert {s.phase for s in studies} == {Phase.STOPPED}
    for one in studies:
        assert len(rack.world.store.trials.list(one.id)) == 7  # the highest cap is the baseline's
        assert one.held is None or one.rests(one.held.rows[0].setting)
        assert all(t.setting["gpu.clock_mhz"] == 1000 for t in rack.world.store.trials.list(one.id))
    assert max(w for _, w in rack.tried) == 350.0
    view = rack.operations.budget("rack")
    assert {m.front for m in view.members} == {"throughput_per_s"}
    assert {m.measured_by for m in view.members} == {""}


def test_the_view_names_the_study_and_the_member_has_the_watts(rack: SweptRack) -> None:
    rack.set(600.0)
    rack.pass_s(20)
    (study,) = rack.sweeps()
    first, *others = rack.operations.budget("rack").members
    assert (first.device, first.measured_by) == ("gpu0", study.id)
    assert first.cap_w == 350.0
    assert sum(m.cap_w for m in others) == 250.0
    assert study.constraints == () and study.terms.trials == 6


def test_few_watts_bound_the_caps_that_are_tried(rack: SweptRack) -> None:
    rack.set(460.0)
    rack.live(60)
    tried = [w for name, w in rack.tried if name == "gpu0"]
    assert max(tried) <= 260.0
    assert rack.operations.budget("rack").members[0].front


def test_a_group_may_forgo_measuring(rack: SweptRack) -> None:
    rack.set(600.0, measure=False)
    rack.live(30)
    assert rack.sweeps() == []
    assert {m.front for m in rack.operations.budget("rack").members} == {""}


def test_an_operators_study_is_not_disturbed(rack: SweptRack) -> None:
    rack.world.start("gpu0")
    rack.set(600.0)
    rack.live(30)
    assert rack.sweeps()[0].devices == ("gpu1",)


def test_a_release_or_an_operators_pause_ends_the_study(rack: SweptRack) -> None:
    rack.set(600.0)
    rack.pass_s(20)
    (study,) = rack.sweeps()
    rack.operations.pause(study.id, Change(who="ann"))
    rack.pass_s(3)
    assert rack.world.store.studies.get(study.id).phase is Phase.STOPPED
    rack.pass_s(20)
    second = rack.sweeps()[1]
    assert second.devices == ("gpu1",)
    rack.operations.release_budget("rack", Change(who="ann"))
    assert rack.world.store.studies.get(second.id).phase is Phase.STOPPED


def test_a_tuner_that_starts_again_continues_the_study(rack: SweptRack) -> None:
    rack.set(600.0)
    rack.live(15)
    loop = rack.world.restarted()
    loop.policies = lambda _: PowerSweep()
    rack.world.loop = loop
    rack.operations = Operations(loop, rack.price)
    rack.live(200)
    assert [s.devices for s in rack.sweeps()] == [("gpu0",), ("gpu1",), ("gpu2",)]


def test_a_member_without_a_needed_metric_is_reported_once() -> None:
    without = tuple(m for m in METRICS if m.name != "power_w")
    rack = SweptRack(World(), metrics=without)
    rack.set(600.0)
    rack.live(60)
    texts = [e.text for e in rack.world.store.events.list() if "not measured" in e.text]
    assert len(texts) == 3
    assert "power_w" in texts[0] and "gpu0" in texts[0]
    assert rack.sweeps() == []
    assert isinstance(rack.hosts["gpu0"], FakeHost)
    assert rack.drawn_w() == 600.0


def test_a_member_that_could_not_be_measured_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measuring, "REFUSED_S", 30.0)
    rack = SweptRack(World(), metrics=tuple(m for m in METRICS if m.name != "power_w"))
    rack.set(600.0)
    rack.live(60)
    texts = [e.text for e in rack.world.store.events.list() if "not measured" in e.text]
    assert len(texts) == 6
