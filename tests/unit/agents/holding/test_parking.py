"""Parking on an engine whose clock decides its speed and its idle power.

45 W with the clock up and 33 W at the lowest clock: a V100 with a model in memory
(sasha0552/nvidia-pstated, issue 6).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from agents.actuator_client.client import LONGEST_TRIAL_S
from agents.config import Attachment
from agents.holding.parking import AGAIN_S, LOOK_S, Parking
from agents.holding.plan_runner import PlanRunner
from agents.target.escape import WAITING
from agents.target.side import SignalSample
from tests.builders import Time
from tests.errors import raised
from tests.fakes import CLOCK, FakeActuator, Rig
from tests.unit.agents.holding.orders import DEVICE, HELD, holder, order
from tuner.core import (
    ActuationError,
    ConfigError,
    DeviceLost,
    InvalidInput,
    Plan,
    Role,
    Setting,
    Signal,
    Space,
)

PARKED: Setting = {**HELD, "gpu.clock_mhz": 400}
AFTER_S, ADDED_MS, CHANGE_S, STEP_S = 30.0, 600.0, 0.1, 0.02
HIGH_W, LOW_W = 45.0, 33.0
OTHERS, OURS = Signal("requests_in_system"), Signal("requests_in_system", askable=True)


@dataclass
class Engine(Time):
    """Serves one request after another, at a speed proportional to the clock in force."""

    device: FakeActuator | None = None
    arrivals: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    joules: float = 0.0
    left_s: float = 0.0
    signal: Signal = OTHERS
    fails: DeviceLost | None = None

    def sleep(self, seconds: float) -> None:
        assert self.device is not None
        for _ in range(round(seconds / STEP_S)):
            super().sleep(STEP_S)
            clock = float(self.device.now["gpu.clock_mhz"])
            if not self.present:
                self.joules += STEP_S * (LOW_W if clock == PARKED["gpu.clock_mhz"] else HIGH_W)
                continue
            self.left_s = (self.left_s or 1.0) - STEP_S * clock / float(HELD["gpu.clock_mhz"])
            if self.left_s <= 1e-9:
                self.left_s = 0.0
                self.latencies.append(self.monotonic() - self.arrivals.pop(0))

    @property
    def present(self) -> float:
        return float(sum(at <= self.monotonic() for at in self.arrivals))

    def read(self) -> SignalSample:
        if self.fails is not None:
            raise self.fails
        return SignalSample(self.present)


class Scene:
    """A held device with a change of `change_s` seconds, whose engine gets the requests of `arrivals`."""

    def __init__(
        self,
        folder: Path,
        arrivals: list[float] | None = None,
        change_s: float = CHANGE_S,
        added_ms: float = ADDED_MS,
    ) -> None:
        self.engine = Engine(arrivals=arrivals or [])
        self.rig = Rig(folder, time=self.engine, signals=(self.engine,))
        self.rig.device_space = Space((replace(CLOCK, role=Role.CORE_CLOCK),))
        self.engine.device = self.rig.device
        self.holder = holder(self.rig)
        self.parking = Parking(self.rig.target, AFTER_S, added_ms)
        parts = (self.rig.target, self.holder, self.engine)
        self.runner = PlanRunner(DEVICE, *parts, parking=self.parking)
        self.holder.take(order())
        self.rig.device.refuse = lambda _: self.engine.sleep(change_s)

    def pass_s(self, seconds: float) -> None:
        end = self.engine.monotonic() + seconds
        while self.engine.monotonic() < end:
            self.engine.sleep(self.runner.tick_s)
            self.runner.tick()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_engine_without_a_request_is_parked_and_its_workload_is_not_written(
    scene: Scene,
) -> None:
    before = len(scene.rig.log)
    scene.pass_s(AFTER_S - 2.0)
    assert scene.rig.setting == HELD
    scene.pass_s(5.0)
    assert scene.rig.setting == PARKED and scene.holder.parked
    assert scene.rig.log[before:] == [("device", {"gpu.clock_mhz": 400})]


def test_the_first_request_brings_the_held_clock_back_at_once(scene: Scene) -> None:
    scene.pass_s(AFTER_S + 5.0)
    scene.engine.arrivals.append(scene.engine.monotonic() + 0.01)
    scene.pass_s(LOOK_S)
    assert scene.rig.setting == HELD and not scene.holder.parked


@pytest.mark.parametrize("seed", range(3))
def test_no_request_loses_more_than_the_reported_time(tmp_path: Path, seed: int) -> None:
    rng, at, arrivals = random.Random(seed), 0.0, list[float]()
    for _ in range(8):
        at += rng.expovariate(1.0 / 60.0)
        arrivals.append(at)
    worlds = [
        Scene(tmp_path / name, list(arrivals), added_ms=added_ms)
        for name, added_ms in (("never", 250.0), ("parked", ADDED_MS))
    ]
    for world in worlds:
        (world.engine.device or world.rig.device).log.clear()
        world.pass_s(at + 100.0)
    never, parked = (world.engine for world in worlds)
    lost = [b - a for a, b in zip(never.latencies, parked.latencies, strict=True)]
    bounds = worlds[1].parking._added_s
    assert bounds and max(lost) <= max(bounds) + STEP_S
    assert 1000.0 * max(bounds) <= ADDED_MS
    assert parked.joules < 0.95 * never.joules


def test_a_change_that_takes_too_long_ends_parking(tmp_path: Path) -> None:
    scene = Scene(tmp_path, change_s=2.0)
    scene.pass_s(AFTER_S + 5.0)
    assert "may lose 2200 ms; the limit is 600 ms" in scene.parking.exceeded
    scene.pass_s(3.0 * AFTER_S)
    assert scene.rig.setting == HELD


def test_a_window_has_the_held_clock_and_a_parked_device_has_no_window(scene: Scene) -> None:
    scene.pass_s(AFTER_S + 5.0)
    with scene.holder.set_aside():
        assert scene.rig.setting == HELD
        scene.pass_s(2.0 * AFTER_S)
        assert scene.rig.setting == HELD


@pytest.mark.parametrize("ends", ["renewed", "enforced", "dropped", "stopped"])
def test_whatever_writes_the_hold_ends_parking(scene: Scene, ends: str) -> None:
    scene.pass_s(AFTER_S + 10.0)
    assert scene.holder.parked
    stopped = threading.Event()
    stopped.set()
    actions: dict[str, Callable[[], object]] = {
        "renewed": lambda: scene.holder.take(order()),
        "enforced": scene.holder.enforce,
        "dropped": scene.holder.drop,
        "stopped": lambda: scene.runner.run(stopped),
    }
    actions[ends]()
    assert not scene.holder.parked
    assert scene.rig.setting["gpu.clock_mhz"] == (1000 if ends == "dropped" else 600)


def test_an_engine_that_does_not_answer_has_the_held_clock(scene: Scene) -> None:
    scene.pass_s(AFTER_S + 5.0)
    scene.engine.fails = DeviceLost("it does not answer")
    scene.pass_s(2.0 * AFTER_S)
    assert scene.rig.setting == HELD


def test_a_change_back_that_fails_is_tried_again(scene: Scene) -> None:
    scene.pass_s(AFTER_S + 5.0)
    scene.engine.arrivals = [scene.engine.monotonic()]
    scene.rig.device.refuse = lambda _: ActuationError("busy")
    scene.pass_s(1.0)
    assert scene.holder.parked
    scene.rig.device.refuse = lambda _: None
    scene.pass_s(1.0)
    assert scene.rig.setting == HELD


def test_the_guard_sees_activity_before_it_ends_a_trial(scene: Scene) -> None:
    before = len(scene.rig.log)
    scene.pass_s(AFTER_S)
    for _ in range(2):
        scene.engine.at += timedelta(seconds=LONGEST_TRIAL_S - AGAIN_S - 10.0)
        scene.pass_s(20.0)
    parked = [one for _, one in scene.rig.log[before:] if one.get("gpu.clock_mhz") == 400]
    assert len(parked) > 1


def test_a_trial_that_starts_during_a_look_keeps_its_setting(scene: Scene) -> None:
    tried: Setting = {**HELD, "gpu.clock_mhz": 800}
    for fails in (None, DeviceLost("it does not answer")):
        scene.pass_s(AFTER_S + 5.0)
        assert scene.holder.parked
        with ExitStack() as trial:

            def read(fails: DeviceLost | None = fails, trial: ExitStack = trial) -> SignalSample:
                trial.enter_context(scene.holder.set_aside(lend=True))
                scene.rig.target.apply(tried)
                if fails is not None:
                    raise fails
                return SignalSample(1.0)

            scene.engine.read = read  # type: ignore[method-assign]
            scene.runner.tick()
            assert scene.rig.setting == tried
        del scene.engine.read
        scene.holder.enforce()


def test_the_tuner_gets_the_held_setting_of_a_parked_device(scene: Scene) -> None:
    scene.pass_s(AFTER_S + 5.0)
    assert scene.rig.setting == PARKED
    assert scene.holder.applied().setting == HELD


@pytest.mark.parametrize("before_s", [0.0, AFTER_S + 5.0])
def test_beside_a_job_nothing_is_written(scene: Scene, before_s: float) -> None:
    scene.pass_s(before_s)
    written, device = len(scene.rig.log), scene.rig.device
    device.job, device.refuse = "7", lambda _: ActuationError("leased to job 7")
    scene.engine.arrivals = [scene.engine.monotonic()]
    scene.pass_s(3.0 * AFTER_S)
    assert len(scene.rig.log) == written and not scene.holder.parked


def test_a_device_held_at_its_lowest_clock_is_not_parked(scene: Scene) -> None:
    scene.holder.take(order(2, Plan.single(PARKED)))
    written = len(scene.rig.log)
    scene.pass_s(2.0 * AFTER_S)
    assert len(scene.rig.log) == written and not scene.holder.parked


def test_a_workload_that_counts_no_requests_of_others_in_progress_is_refused(
    tmp_path: Path,
) -> None:
    for signals in ((), (Engine(signal=OURS),), (Engine(signal=Signal(WAITING)),)):
        rig = Rig(tmp_path, signals=signals)
        with raised(InvalidInput, "park_after_s needs a workload"):
            Parking(rig.target, AFTER_S, ADDED_MS)


@pytest.mark.parametrize(
    "keys",
    [
        {"park_after_s": 30.0},
        {"park_added_ms": 500.0},
        {"park_after_s": 30.0, "park_added_ms": 200.0},
        {"park_after_s": 0.5, "park_added_ms": 500.0},
        {"park_after_s": 30.0, "park_added_ms": 500.0, "observe": True},
        {"park_after_s": 30.0, "park_added_ms": 500.0, "workload": ""},
    ],
)
def test_keys_without_their_meaning_are_refused(keys: dict[str, object]) -> None:
    with raised(ConfigError, "cannot be parked"):
        Attachment(**{"spec": "nvidia:0", "workload": "service:x.toml", **keys})  # type: ignore[arg-type]
