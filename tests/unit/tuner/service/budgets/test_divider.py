"""A group from its declaration to its release: hosts that report and obey, and an unreliable tuner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from pydantic import ValidationError

from tests.builders import START, device, setting, window
from tests.errors import raised
from tests.unit.tuner.study.worlds import World
from tuner.config import SeriesTable, TunerConfig
from tuner.core import (
    AccessRole,
    CapKnob,
    CapSchedule,
    Conflict,
    Estimate,
    HourRow,
    InvalidInput,
    NotFound,
    Outcome,
    Phase,
    TrialState,
)
from tuner.presentation.standing import standing, status
from tuner.service.energy_price import EnergyPrice
from tuner.service.fleet import FleetOverview
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.wire import (
    AdmitDraft,
    BudgetDraft,
    BudgetOrder,
    BudgetReport,
    Change,
    GridDraft,
    Health,
    TokenDraft,
)

KNOBS = (CapKnob("gpu.power_limit_w", 100.0, 100.0, 350.0),)
ALL: dict[str, tuple[str, ...]] = {"id": ("gpu*",)}


@dataclass
class FakeHost:
    """A host that obeys its orders, as an actuator would."""

    group: str = ""
    revision: int = 0
    steps: list[tuple[float, float]] = field(default_factory=list)

    def cap_w(self, now_s: float) -> float:
        if not self.group:
            return 350.0
        return next((w for at, w in reversed(self.steps) if at <= now_s), 100.0)

    def report(self) -> BudgetReport:
        return BudgetReport(agent="host/1", knobs=KNOBS, group=self.group, revision=self.revision)

    def obey(self, order: BudgetOrder, now_s: float) -> None:
        if order.kind == "release":
            self.group, self.revision, self.steps = "", 0, []
        elif order.kind == "caps":
            assert order.revision > self.revision or order.group != self.group
            self.group, self.revision = order.group, order.revision
            self.steps = [(now_s + s.in_s, s.at_most["gpu.power_limit_w"]) for s in order.steps]


@dataclass
class Rack:
    """Three devices, and the tuner that divides the watts among them."""

    world: World = field(default_factory=World)
    hosts: dict[str, FakeHost] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        table = {"grid": SeriesTable(rows=(HourRow(500.0, "12-13"), HourRow(900.0)))}
        self.price = EnergyPrice.of(TunerConfig(series=table))
        self.operations = Operations(self.world.loop, self.price)
        for name in ("gpu0", "gpu1", "gpu2"):
            self.world.loop.register(device(name))
            self.hosts[name] = FakeHost()
            self.exchange(name)

    @property
    def now_s(self) -> float:
        return self.world.time.monotonic()

    def exchange(self, name: str) -> None:
        host = self.hosts[name]
        host.obey(self.operations.divider.answer(name, host.report()), self.now_s)

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.time.sleep(1.0)
            self.operations.divider.divide()
            for name in self.hosts.keys() - self.gone:
                self.exchange(name)

    def drawn_w(self) -> float:
        return sum(host.cap_w(self.now_s) for host in self.hosts.values())

    def set(self, watts: float | None = 600.0, **changes: object) -> None:
        fields: dict[str, object] = {"select": ALL, "watts": watts, **changes}
        self.operations.set_budget("rack", BudgetDraft.model_validate(fields))

    def event(self, after_s: float = 0.0, **limit: object) -> None:
        at = self.world.time.now() + timedelta(seconds=after_s)
        fields = {"effective_at": at, "expires_at": at + timedelta(hours=1), **limit}
        self.operations.grid_event(GridDraft.model_validate(fields))


@pytest.fixture
def bare() -> Rack:
    return Rack()


@pytest.fixture
def rack(bare: Rack) -> Rack:
    """The members of a group of 600 W, with their first caps."""
    bare.set(600.0)
    bare.pass_s(5)
    return bare


def test_members_join_are_capped_and_use_their_watts(rack: Rack) -> None:
    assert rack.drawn_w() == 600.0
    view = rack.operations.budget("rack")
    assert (view.budget_w, view.may_draw_w, view.missing_w) == (600.0, 600.0, 0.0)
    assert {m.state for m in view.members} == {"joined"}


def test_an_event_lowers_all_within_its_ten_seconds_and_ends_by_itself(rack: Rack) -> None:
    rack.event(share=0.65, why="peak")
    rack.pass_s(3)
    assert rack.drawn_w() <= 390.0
    rack.world.time.sleep(3600.0)
    rack.pass_s(5)
    assert rack.drawn_w() == 600.0
    assert rack.operations.budget("rack").events == ()


def test_an_event_known_ahead_happens_without_the_tuner(rack: Rack) -> None:
    rack.event(after_s=60.0, watts=400.0)
    rack.pass_s(3)
    assert rack.drawn_w() == 600.0
    rack.world.time.sleep(60.0)
    assert rack.drawn_w() <= 400.0


def test_below_the_floors_all_go_to_the_floor_and_the_missing_watts_are_named(rack: Rack) -> None:
    rack.event(watts=120.0)
    rack.pass_s(5)
    assert rack.drawn_w() == 300.0
    assert rack.operations.budget("rack").missing_w == 180.0
    texts = [e.text for e in rack.world.store.events.list() if e.kind == "budget"]
    assert any("180 W are missing" in text for text in texts)


def test_a_restarted_tuner_continues_from_the_store(rack: Rack) -> None:
    rack.event(share=0.75)
    rack.operations = Operations(rack.world.restarted(), rack.price)
    rack.pass_s(6)
    assert rack.drawn_w() <= 450.0
    assert rack.operations.budget("rack").may_draw_w <= 450.0


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_repeatedly_delays_nothing(bare: Rack, seconds: float) -> None:
    bare.set(600.0)
    for n in range(60):
        if n == 20:
            bare.set(450.0)
        if n == 25:
            bare.gone.add("gpu1")
        if n % 5 == 0:
            bare.world.time.step(timedelta(seconds=seconds if n % 10 else -seconds))
        bare.pass_s(1)
        assert n < 5 or bare.drawn_w() <= (600.0 if n < 22 else 450.0)
        states = {m.device: m.state for m in bare.operations.budget("rack").members}
        # Answers without news are stored once in five seconds.
        assert 25 + 25 <= n < 25 + 31 or (states["gpu1"] == "unreachable") == (n >= 25 + 31)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_after_a_start_silence_counts_from_zero_and_a_silent_member_with_all_it_may(
    rack: Rack, seconds: float
) -> None:
    rack.event(share=0.9)
    rack.pass_s(5)
    rack.gone.add("gpu1")
    rack.world.time.step(timedelta(seconds=seconds))
    rack.operations = Operations(rack.world.restarted(), rack.price)
    rack.set(570.0)
    rack.pass_s(2)
    assert rack.drawn_w() <= 570.0
    assert {m.state for m in rack.operations.budget("rack").members} == {"joined"}
    rack.pass_s(30)
    view = {m.device: m for m in rack.operations.budget("rack").members}
    assert (view["gpu1"].state, view["gpu1"].may_draw_w) == ("unreachable", 350.0)
    rack.gone.clear()
    rack.set(510.0)
    rack.pass_s(12)
    assert 505.0 < rack.drawn_w() <= 510.0


def test_a_silent_member_is_named_and_the_others_give_its_watts(rack: Rack) -> None:
    rack.gone.add("gpu1")
    rack.event(share=0.75)
    rack.pass_s(9)
    assert rack.drawn_w() <= 450.0
    states = {m.device: m.state for m in rack.operations.budget("rack").members}
    assert states["gpu1"] == "unreachable"
    rack.pass_s(130)
    view = {m.device: m for m in rack.operations.budget("rack").members}
    assert view["gpu1"].may_draw_w == 350.0
    rack.gone.clear()
    rack.pass_s(10)
    assert rack.drawn_w() == 450.0


def test_by_hour_the_lower_hour_is_handed_out_before(bare: Rack) -> None:
    bare.set(watts=None, rows=[{"value": 400.0, "hours": "13-14"}, {"value": 600.0}])
    bare.pass_s(5)
    assert bare.drawn_w() == 600.0
    bare.world.time.sleep(3600.0)
    assert bare.drawn_w() <= 400.0


def test_a_series_of_the_configuration_is_followed(bare: Rack) -> None:
    bare.set(watts=None, series="grid")
    bare.pass_s(5)
    assert 497.0 <= bare.drawn_w() <= 500.0
    with raised(InvalidInput, "solar", "grid"):
        bare.set(watts=None, series="solar")


def test_released_members_are_restored_and_notified_once(rack: Rack) -> None:
    rack.operations.release_budget("rack", Change(who="ann"))
    rack.pass_s(2)
    assert {h.group for h in rack.hosts.values()} == {""}
    assert rack.operations.budgets() == []
    rack.set(450.0)
    rack.pass_s(5)
    assert rack.drawn_w() == 450.0


def test_a_group_whose_floors_do_not_fit_is_refused_with_the_missing_watts(bare: Rack) -> None:
    with raised(InvalidInput, "50 W more", "gpu0 100 W"):
        bare.set(250.0)
    assert bare.operations.budgets() == []


def test_devices_without_a_floor_or_of_another_group_are_refused_by_name(bare: Rack) -> None:
    bare.world.loop.register(device("cpu0"))
    with raised(InvalidInput, "cpu0", "floor"):
        bare.set(600.0, select={"id": ("*",)})
    bare.set(600.0)
    with raised(Conflict, "gpu0", "rack"):
        bare.operations.set_budget("other", BudgetDraft(select=ALL, watts=600.0))
    with raised(InvalidInput, "no device matches"):
        bare.operations.set_budget("none", BudgetDraft(select={"id": ("x",)}, watts=600.0))


def test_events_need_a_group_an_end_and_one_limit(bare: Rack) -> None:
    with raised(NotFound, "no budget"):
        bare.event(watts=100.0)
    bare.set(600.0)
    with raised(NotFound, "attic"):
        bare.event(watts=100.0, groups=("attic",))
    with raised(InvalidInput, "share"):
        bare.event(watts=100.0, share=0.5)
    with raised(InvalidInput, "past"):
        bare.event(after_s=-7200.0, share=0.5)


def test_a_new_device_is_outside_until_an_operator_lets_it_in(rack: Rack) -> None:
    for name in ("gpu7", "gpu8", "gpu9"):
        rack.world.loop.register(device(name))
        rack.hosts[name] = FakeHost()
    rack.pass_s(5)
    own = [rack.hosts[f"gpu{n}"].cap_w(rack.now_s) for n in range(3)]
    assert sum(own) == 540.0, "they take the reserve, and no more"
    view = rack.operations.budget("rack")
    assert view.outside == dict.fromkeys(("gpu7", "gpu8", "gpu9"), 350.0)
    assert {m.device for m in view.members} == {"gpu0", "gpu1", "gpu2"}
    texts = [e.text for e in rack.world.store.events.list() if e.kind == "budget"]
    assert sum("above its reserve of 60 W: gpu7, gpu8, gpu9" in text for text in texts) == 1
    with raised(InvalidInput, "does not select"):
        rack.world.loop.register(device("cpu0"))
        rack.operations.admit("rack", AdmitDraft(devices=("cpu0",)))
    rack.operations.admit("rack", AdmitDraft(devices=("gpu7",)))
    rack.set(600.0, select={"id": ("gpu*", "gpu8")})
    rack.pass_s(8)
    view = rack.operations.budget("rack")
    assert (set(view.outside), len(view.members)) == ({"gpu9"}, 5)
    assert sum(rack.hosts[m.device].cap_w(rack.now_s) for m in view.members) == 540.0
    rack.hosts.pop("gpu9")
    rack.operations.release_budget("rack", Change(who="ann"))
    rack.pass_s(3)
    rack.set(700.0)
    rack.pass_s(5)
    assert len(rack.operations.budget("rack").members) == 6, (
        "who declares it lets in all that match"
    )


def test_events_replace_their_like_are_bounded_and_end_with_their_sender(bare: Rack) -> None:
    bare.set(600.0)
    budgets, access = bare.world.store.budgets, bare.operations.access
    with raised(InvalidInput, "7 days"):
        bare.event(watts=100.0, expires_at=bare.world.time.now() + timedelta(days=8))
    with pytest.raises(ValidationError, match="listed twice"):
        bare.event(watts=300.0, groups=("rack", "rack"))
    for watts in (300.0, 400.0):
        before = budgets.group("rack").revision
        bare.event(watts=watts, id="peak", who="utility")
        assert budgets.group("rack").revision == before + 1
    (event,) = bare.operations.budget("rack").events
    assert event.watts == 400.0
    with raised(Conflict, "another sender"):
        bare.event(watts=500.0, id="peak", who="mallory")
    for _ in range(15):
        bare.event(watts=500.0, who="mallory")
    with raised(Conflict, "16 events", "budget event end"):
        bare.event(watts=500.0)
    access.create(TokenDraft(name="mallory", role=AccessRole.GRID))
    access.revoke("mallory")
    assert bare.operations.budget("rack").events == (event,)
    bare.operations.end_grid_event("peak", Change(who="ann"))
    assert bare.operations.budget("rack").events == ()
    with raised(NotFound, "peak", "budget show"):
        bare.operations.end_grid_event("peak", Change(who="ann"))


def test_a_host_that_reports_it_cannot_keep_its_caps_counts_as_silent(rack: Rack) -> None:
    rack.gone.add("gpu2")
    host = rack.hosts["gpu2"]
    broken = replace(host).report().model_copy(update={"unable": "driver hangs"})
    for _ in range(40):
        rack.pass_s(1)
        assert rack.operations.divider.answer("gpu2", broken).kind == "none"
    states = {m.device: m.state for m in rack.operations.budget("rack").members}
    assert states["gpu2"] == "unreachable"


def test_a_host_that_lost_its_memory_gets_its_caps_again(rack: Rack) -> None:
    rack.hosts["gpu0"] = FakeHost(group="rack")
    rack.pass_s(3)
    assert rack.drawn_w() == 600.0


def test_a_study_whose_limits_its_cap_breaks_reports_that(bare: Rack) -> None:
    started = bare.world.start("gpu0", constraints=("latency_p99_ms <= 110",))
    for clock, watts, latency_ms in ((1000, 300.0, 90.0), (800, 250.0, 105.0), (600, 150.0, 150.0)):
        power = {"power_w": Estimate.of_mean(watts, 1.0, 10)}
        seen = window(10.0, latency_ms, extra=power)
        trial = bare.world.store.trials.begin(
            started.id, setting(clock), Phase.BASELINE if clock == 1000 else Phase.TUNING, "", START
        )
        bare.world.store.trials.end(
            started.id, trial.number, Outcome(state=TrialState.COMPLETED, measurement=seen), START
        )
    bare.set(600.0)
    bare.pass_s(5)
    fleet = FleetOverview(bare.operations, Summaries(bare.operations))
    assert bare.operations.study(started.id).capped == ""
    bare.event(watts=310.0)
    bare.pass_s(10)
    (view,) = bare.operations.studies()
    assert "rack" in view.capped and "250 W" in view.capped
    assert status(view) == "limit not met"
    assert view.capped in standing(view)
    assert {r.device: r.health for r in fleet.view().rows}["gpu0"] is Health.LIMIT_NOT_MET


def test_caps_that_no_host_can_read_are_an_event_and_are_not_sent(rack: Rack) -> None:
    budgets = rack.world.store.budgets
    record = budgets.member("gpu0")
    assert record is not None
    (step,) = record.power.latest.steps
    sent = CapSchedule(record.power.revision + 1, (replace(step, cap_w=1e12),))
    budgets.put_member(replace(record, power=record.power.sending(sent)))
    answers = {rack.operations.divider.answer("gpu0", rack.hosts["gpu0"].report()).kind}
    told = [e.text for e in rack.world.store.events.list() if "the order of caps" in e.text]
    assert answers == {"none"} and len(told) == 1
    assert "gpu0" in told[0] and "cap_w" in told[0]
