"""Flags of a service as an agent tunes them: beside a device's own knobs, restored with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.actuator.main import listen
from agents.config import Attachment
from agents.devices.unit import device as unit_device
from agents.devices.unit.device import START_S, open_unit
from agents.host.processes import commands
from agents.main import open_target
from agents.target.side import Side
from agents.target.target import Target
from tests.actuation import actuator_of
from tests.builders import Time
from tests.errors import raised
from tests.fake_systemd import COMMAND, NAME, FakeSystemd
from tests.fakes import FakeActuator, Rig
from tests.unit.agents.agent.orders import hold, trial
from tests.unit.agents.devices.unit.test_knobs import BATCH, DRAFT, TERMS, THREADS, Hand, offered
from tuner.core import NO_ANSWER, ActuationError, DeviceLost, InvalidInput, Part, Plan, Value
from tuner.wire import Release

OWN: dict[str, Value] = {BATCH: 64, DRAFT: 0, THREADS: 2}
CLOCK = "gpu.clock_mhz"


@dataclass
class Host:
    """A service of a fake systemd, and an actuator served by a thread."""

    systemd: FakeSystemd
    terms: Granted = TERMS
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    @property
    def socket(self) -> Path:
        return self.systemd.root / "socket"

    def open(self) -> None:
        """Start the actuator and replay its journal."""
        ready, self.stop = threading.Event(), threading.Event()
        config = ActuatorConfig(devices=(self.terms,), min_restart_s=0.0)
        driver = offered(self.systemd, grant=self.terms.grant, original=self.terms.original)
        journal = RestoreJournal(self.systemd.root / "journal")

        async def served(stop: threading.Event) -> None:
            made = await actuator_of(config, lambda: Hand(driver), journal, "boot", lambda: 0.0)
            await made.replay()
            server = await listen(made, self.socket)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.01)
            server.close()

        self.thread = threading.Thread(target=asyncio.run, args=(served(self.stop),))
        self.thread.start()
        assert ready.wait(30.0)

    def shut(self) -> None:
        self.stop.set()
        if self.thread is not None:
            self.thread.join()

    @property
    def running(self) -> str:
        return str(self.systemd.state["running"])

    @property
    def restarts(self) -> int:
        return int(self.systemd.state["all"]) - 1


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    systemd = FakeSystemd(tmp_path / "root")
    systemd.boot()
    host = Host(systemd)
    host.open()
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(host.socket))
    yield host
    host.shut()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(unit_device, "HostClock", lambda: time)
    return time


def opened(name: str = NAME) -> Side:
    return open_unit(name, seed=0, state_dir=None, root=Path("/"))


@dataclass
class Service(FakeActuator):
    """A workload that first answers a given time after each start of its unit."""

    host: Host = field(kw_only=True)
    time: Time = field(kw_only=True)
    starts_s: float = 20.0
    seen: tuple[int, float] = (0, 0.0)

    def demand_answer(self) -> None:
        if self.host.restarts != self.seen[0]:
            self.seen = (self.host.restarts, self.time.monotonic())
        if self.seen[0] and self.time.monotonic() < self.seen[1] + self.starts_s:
            raise DeviceLost("connection refused")

    def incarnation(self) -> str:
        return str(self.host.restarts)


@dataclass
class UnitRig(Rig):
    """An agent of a GPU with a service's flags, in one target."""

    host: Host = field(kw_only=True)
    starts_s: float = 20.0
    side: Side | None = None

    @property
    def target(self) -> Target:
        alone = super().target
        assert alone.workload is not None
        if self.side is None:
            self.side = opened()
            self.service = Service(
                "workload",
                self.workload_space,
                self.log,
                host=self.host,
                time=self.time,
                starts_s=self.starts_s,
            )
            workload = replace(alone.workload, actuator=self.service)
            self.whole = Target((self.side, *alone.devices), workload)
            self.side.actuator.restarts(workload)  # type: ignore[attr-defined]
        return self.whole


@pytest.fixture
def rig(
    host: Host, time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[UnitRig]:
    (tmp_path / "agent").mkdir()
    monkeypatch.setattr(commands, "systemctl", host.systemd.call)
    rig = UnitRig(tmp_path / "agent", time, host=host)
    yield rig
    rig.target.close()


BASELINE = {CLOCK: 1000, "batch_size": 1, **OWN}
TRIED = {CLOCK: 400, "batch_size": 4, **OWN, THREADS: 4, BATCH: 32}
HELD = {CLOCK: 600, "batch_size": 2, **OWN, THREADS: 1}


def test_flags_are_knobs_of_the_workload_that_restart_it_without_a_metric(host: Host) -> None:
    side = opened()
    assert side.space.default == OWN and not side.metrics
    assert side.space.knob(THREADS).values == (1, 2, 4)
    assert all(k.part is Part.WORKLOAD and k.cost.restart for k in side.space.knobs)
    window = side.meter.start()
    assert (window.read().totals, window.stop().totals) == ({}, {})
    assert side.actuator.read() == OWN and host.restarts == 0
    side.close()


def test_without_its_actuator_the_knob_is_missing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raised(ActuationError, "unit:other.service: the actuator has no device") as refused:
        opened("other.service")
    assert 'add "unit:other.service" to drivers' in refused.value.hint
    for name in ("../x.service", "x.timer", ""):
        with raised(InvalidInput, "there is no service"):
            opened(name)
    host.shut()
    host.terms = replace(TERMS, grant={"--draft-min": ("0", "1")}, original={})
    host.open()
    with raised(ActuationError, "--draft-min: the unit's command lacks it") as refused:
        opened()
    assert "grant its flags" in refused.value.hint
    monkeypatch.setenv("JOULETUNE_ACTUATOR", "/nowhere")
    with raised(ActuationError, f"unit:{NAME} cannot be set: the actuator at /nowhere"):
        opened()


def test_a_service_without_a_workload_is_refused(host: Host, tmp_path: Path) -> None:
    with raised(InvalidInput, f"{NAME} has no workload") as refused:
        open_target(Attachment(f"unit:{NAME}"), "unit@host", 0, tmp_path, Path("/"))
    assert "service:/etc/jouletune/FILE.toml" in refused.value.hint


def test_a_setting_takes_effect_once_the_service_answers(rig: UnitRig) -> None:
    """The clock rises before the restart, the workload's own knobs are set after it."""
    target, began = rig.target, rig.time.monotonic()
    rig.device.now[CLOCK] = 800
    target.apply({**TRIED, CLOCK: 1000})
    assert rig.time.monotonic() - began == pytest.approx(20.0, abs=1.0)
    assert "--threads 4 --batch=32" in rig.host.running and rig.host.restarts == 1
    assert [label for label, _ in rig.log] == ["device", "workload"]
    assert target._order(target.read_sides(), {}) == ["fake", "unit", "workload"]
    target.apply(TRIED)  # only the clock
    assert rig.host.restarts == 1 and rig.time.monotonic() - began < 25.0
    assert target.source("energy_j") == "the meter of fake"
    target.restore_originals({"fake": {CLOCK: 1000}, "unit": OWN, "workload": {"batch_size": 1}})
    assert rig.host.running == COMMAND and rig.host.restarts == 2
    assert target.read() == {**BASELINE, CLOCK: 1000}
    assert rig.time.monotonic() - began >= 40.0


def test_a_service_that_does_not_answer_fails_the_trial_and_all_is_undone(rig: UnitRig) -> None:
    rig.starts_s = START_S + 10.0
    with raised(ActuationError, f"{NAME} {NO_ANSWER}: 300 s without an answer"):
        rig.target.apply(TRIED)
    assert rig.host.running == COMMAND and rig.device.now == {CLOCK: 1000}
    assert rig.host.systemd.left == []
    with raised(ActuationError, "has not loaded"):
        rig.host.systemd.goes_wrong(lost=True)
        rig.target.apply(TRIED)
    rig.host.systemd.goes_wrong(lost=False)


@pytest.mark.parametrize("how", ["dies", "bad"])
def test_a_service_that_has_failed_is_not_waited_for(how: str, rig: UnitRig) -> None:
    """systemd shows that its process ends again and again, or does not start at all."""
    target, began = rig.target, rig.time.monotonic()
    rig.host.systemd.goes_wrong(**{how: "4"})
    with raised(ActuationError, f"{NAME} {NO_ANSWER}") as refused:
        target.apply(TRIED)
    assert "journalctl -u" in refused.value.hint
    assert rig.time.monotonic() - began < 25.0, "20 s of them are the start with its own command"
    assert rig.host.running == COMMAND and rig.device.now == {CLOCK: 1000}


def test_an_agent_tries_holds_and_releases_flags_with_clocks(rig: UnitRig) -> None:
    agent = rig.agent()
    agent.begin()
    rig.tuner.orders.append(trial(setting=TRIED, baseline=BASELINE))
    agent.step()
    assert rig.host.running == COMMAND and rig.host.restarts == 2
    rig.tuner.orders.append(hold(plan=Plan.single(HELD), baseline=BASELINE))
    agent.step()
    assert "--threads 1" in rig.host.running and rig.device.now == {CLOCK: 600}
    restarts = rig.host.restarts
    agent.runner.tick()
    agent.step()
    assert rig.host.restarts == restarts
    rig.tuner.orders.append(Release(why="over"))
    agent.step()
    agent.step()
    assert rig.host.running == COMMAND and rig.host.systemd.left == []
    assert rig.setting == {CLOCK: 1000, "batch_size": 1}
    reports = rig.tuner.told("/trials/report")
    assert [m["outcome"]["state"] for m in reports] == ["completed"]
    # The window begins after the first answer.
    assert reports[0]["outcome"]["measurement"]["overhead_s"] > 20.0


def test_a_restart_of_actuator_or_agent_restarts_no_service_at_its_hold(
    rig: UnitRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_RESULT", "signal")
    agent = rig.agent()
    agent.begin()
    rig.tuner.orders.append(hold(plan=Plan.single(HELD), baseline=BASELINE))
    agent.step()
    assert rig.host.restarts == 1
    rig.host.shut()
    rig.host.open()
    assert rig.side is not None and rig.side.guard is not None
    assert "lease" in rig.side.guard.conflict()  # and the hold was requested again
    assert rig.side.guard.conflict() == ""
    rig.target.close()
    rig.side = None
    rig.agent().begin()
    assert "--threads 1" in rig.host.running and rig.host.restarts == 1


def test_a_boot_ends_the_flags_and_the_hold_sets_them_anew(rig: UnitRig) -> None:
    agent = rig.agent()
    agent.begin()
    rig.tuner.orders.append(hold(plan=Plan.single(HELD), baseline=BASELINE))
    agent.step()
    rig.target.close()
    rig.host.shut()
    for left in rig.host.systemd.folders[1].glob("*"):
        left.unlink()
    rig.host.systemd.boot()
    rig.device.now[CLOCK] = 1000
    rig.host.open()
    rig.side, rig.boot = None, "boot-2"
    rig.agent().begin()
    assert "--threads 1" in rig.host.running and rig.device.now == {CLOCK: 600}
