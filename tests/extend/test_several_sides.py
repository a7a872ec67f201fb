"""A study over a GPU's clock, the clock of the host's CPU and a batch size: PolyThrottle's own knobs.

Only the three sides are written here. A batch takes a/f_gpu + b/f_cpu, the power of GPU and CPU depends
on their own clock, and requests wait for their batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agents.target.side import Side
from agents.target.target import Target
from tests.builders import Time
from tests.extend.lab import DEVICE, Lab, lab
from tuner.core import (
    Estimate,
    Knob,
    Meter,
    Metric,
    Origin,
    Part,
    Reading,
    Role,
    Scope,
    Setting,
    Space,
    Value,
    setting_key,
)
from tuner.wire import Change, StudyDraft

GPU = Knob("gpu.clock_mhz", (600, 900, 1200, 1500), 1500, role=Role.CORE_CLOCK)
CPU = Knob("cpu.max_mhz", (1000, 2000, 3000), 3000, role=Role.HOST_CLOCK)
BATCH = Knob("batch_size", (1, 2, 4, 8), 1, Part.WORKLOAD, role=Role.BATCH)
LIMIT = 3.0


@dataclass
class World:
    """The state shared by all sides: the setting in force, and the order of its changes."""

    time: Time = field(default_factory=Time)
    now: dict[str, Value] = field(
        default_factory=lambda: {knob.name: knob.default for knob in (GPU, CPU, BATCH)}
    )
    changes: list[str] = field(default_factory=list)

    def batch_s(self) -> float:
        """Return the seconds of a batch."""
        per_item = 4.0 / float(self.now[GPU.name])
        fixed = 2.0 / float(self.now[GPU.name]) + 4.0 / float(self.now[CPU.name])
        return fixed + float(self.now[BATCH.name]) * per_item

    def watts(self, knob: Knob) -> float:
        """Return the power of the GPU or the CPU at its clock."""
        share = float(self.now[knob.name]) / float(knob.values[-1])
        return (30.0 + 170.0 * share**3) if knob is GPU else (10.0 + 60.0 * share**3)


@dataclass
class Knobs:
    """Sets one knob of the world."""

    world: World
    knob: Knob

    def read(self) -> Setting:
        return {self.knob.name: self.world.now[self.knob.name]}

    def apply(self, setting: Setting) -> None:
        Space((self.knob,)).check({**self.read(), **setting})
        if any(self.world.now[name] != value for name, value in setting.items()):
            self.world.changes.append(self.knob.name)
        self.world.now.update(setting)


@dataclass
class Power:
    """Meters the energy of the GPU or the CPU."""

    world: World
    knob: Knob

    def start(self) -> Span:
        return Span(self.world, lambda s: Reading({"energy_j": s * self.world.watts(self.knob)}))


@dataclass
class Requests:
    """Meters the served requests."""

    world: World

    def start(self) -> Span:
        return Span(self.world, self.served)

    def served(self, seconds: float) -> Reading:
        batches = seconds / self.world.batch_s()
        latency = 1000.0 * self.world.batch_s()
        tail = Estimate.of_mean(latency, 0.002 * latency, 1000, origin=Origin.SIMULATED)
        return Reading(
            {"items": batches * float(self.world.now[BATCH.name])}, {"latency_p99_ms": tail}
        )


class Span:
    """A window over the time since its start."""

    def __init__(self, world: World, shows: Callable[[float], Reading]) -> None:
        self._world, self._shows, self._began = world, shows, world.time.monotonic()

    def read(self) -> Reading:
        return self._shows(self._world.time.monotonic() - self._began)

    stop = read


def side(world: World, knob: Knob, meter: Meter, *metrics: str) -> Side:
    kind = knob.name.partition(".")[0]
    scope = Scope.SERVICE if knob.part is Part.WORKLOAD else Scope.BOARD
    return Side(
        name=kind,
        kind=kind,
        board=f"{kind} of the lab",
        version="1",
        space=Space((knob,)),
        metrics=tuple(Metric(name, Origin.SIMULATED, scope) for name in metrics),
        actuator=Knobs(world, knob),
        meter=meter,
    )


def target(world: World) -> Target:
    devices = tuple(
        side(world, knob, Power(world, knob), "energy_j", "power_w") for knob in (GPU, CPU)
    )
    return Target(devices, side(world, BATCH, Requests(world), "latency_p99_ms"))


def true_energy_j(world: World, setting: Setting) -> float:
    other = World(now=dict(setting))
    watts = other.watts(GPU) + other.watts(CPU)
    return watts * other.batch_s() / float(setting[BATCH.name])


@pytest.fixture
def tuned(tmp_path: Path) -> Iterator[tuple[World, Lab, Setting]]:
    world = World()
    with lab(tmp_path, target(world), world.time) as opened:
        view = opened.tune(
            StudyDraft(devices=(DEVICE,), constraints=(f"latency_p99_ms <= {LIMIT}x baseline",))
        )
        assert view.plan is not None
        yield world, opened, view.plan.rows[0].setting


def test_two_sides_are_tuned_as_one_and_both_save(tuned: tuple[World, Lab, Setting]) -> None:
    world, opened, held = tuned
    assert world.now == held
    space = opened.target.space
    fit = [s for s in space.grid() if World(now=dict(s)).batch_s() <= LIMIT * World().batch_s()]
    best = min(true_energy_j(world, s) for s in fit)
    before = true_energy_j(world, space.default)
    assert setting_key(held) in {setting_key(s) for s in fit}
    assert before - true_energy_j(world, held) >= 0.9 * (before - best)


def test_the_batch_size_changes_before_the_clocks(tuned: tuple[World, Lab, Setting]) -> None:
    world, opened, held = tuned
    opened.target.apply(opened.target.space.default)
    world.changes.clear()
    opened.target.apply(held)
    clocks = [name for name in world.changes if name != BATCH.name]
    assert world.changes.index(BATCH.name) < min(world.changes.index(name) for name in clocks)


def test_every_side_goes_back_when_the_study_ends(tuned: tuple[World, Lab, Setting]) -> None:
    world, opened, _ = tuned
    study = opened.verbs.studies()[0].id
    opened.verbs.stop(study, Change(who="ann", why="enough"))
    opened.agent.step()
    assert world.now == opened.target.space.default


def test_the_energy_is_that_of_both_with_a_note(tuned: tuple[World, Lab, Setting]) -> None:
    world, opened, _ = tuned
    assert opened.target.source("energy_j") == "the meter of gpu + the meter of cpu"
    study = opened.verbs.studies()[0]
    shown = study.baseline.metrics["energy_j"]
    assert shown.mean == pytest.approx(true_energy_j(world, opened.target.space.default), rel=1e-3)
