"""A hundred identical devices one after the other: real actuators over fake drivers, the production loop.

Each device has an actuator, a journal and a file as its hardware. A trial is applied through the
actuator; a window shows the true values at the setting in the file.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

from agents.actuator.device import Peer
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from policies import load_policy
from tests.actuation import Direct, DirectHand, actuator_of
from tests.builders import Time
from tests.stores import memory_store
from tuner.core import (
    Applied,
    Constraint,
    Device,
    Estimate,
    Knob,
    Level,
    Measurement,
    Metric,
    Objective,
    Origin,
    Outcome,
    Phase,
    Role,
    Setting,
    Space,
    Study,
    Terms,
    TrialState,
    student_t95,
)
from tuner.study.loop import Loop
from tuner.wire import Assignment, HoldOrder, Poll, TrialReport

GPU, PEER, BOOT = "GPU-1", Peer(1, 1, 7), "this boot"
CLOCK, POWER_LIMIT = "gpu.clock_mhz", "gpu.power_limit_w"
TOP = 1410
SPACE = Space(
    (
        Knob(CLOCK, tuple(range(510, TOP + 1, 60)), TOP, role=Role.CORE_CLOCK),
        Knob(POWER_LIMIT, tuple(range(150, 401, 50)), 400, role=Role.POWER_LIMIT),
    )
)
LIMIT = Constraint("latency_ms", "<=", 1.15, relative=True)
NOISE, PARTS, WINDOW_S, MOST_STEPS = 0.01, 10, 10.0, 400


@dataclass(frozen=True, slots=True)
class Silicon100:
    """The constants of one device: seconds of compute at the top clock and of memory, watts, voltage."""

    compute_s: float = 0.010
    memory_s: float = 0.012
    idle_w: float = 70.0
    switch_w: float = 260.0
    low: float = 0.70

    def shows(self, clock_mhz: float, limit_w: float) -> dict[str, float]:
        """Return the true metrics at a clock and a power limit."""
        clocks = [c for c in range(210, int(clock_mhz) + 1, 60) if self.watts(c) <= limit_w]
        clock = max(clocks, default=210)
        seconds = self.compute_s * TOP / clock + self.memory_s
        watts = self.watts(clock)
        return {"energy_j": watts * seconds, "latency_ms": 1000.0 * seconds, "power_w": watts}

    def watts(self, clock_mhz: float) -> float:
        """Return the power at a clock."""
        share = clock_mhz / TOP
        volts = max(self.low, 0.55 + 0.45 * share)
        return self.idle_w + self.switch_w * share * volts**2


def like(rng: Random) -> Silicon100:
    """Return a device of the board that differs by some percent from the others."""
    usual = Silicon100()
    return Silicon100(
        compute_s=usual.compute_s * math.exp(rng.gauss(0.0, 0.015)),
        memory_s=usual.memory_s * math.exp(rng.gauss(0.0, 0.015)),
        idle_w=usual.idle_w * math.exp(rng.gauss(0.0, 0.03)),
        switch_w=usual.switch_w * math.exp(rng.gauss(0.0, 0.02)),
    )


ODD = {
    "physics": Silicon100(memory_s=0.018, idle_w=110.0),
    "labels": Silicon100(compute_s=0.030, memory_s=0.002, switch_w=180.0),
    "physics, the same baseline": Silicon100(compute_s=0.021, memory_s=0.001),
}
"""A board with a memory fault and a worn cooler, another board with the same name, and one with only
its baseline like the others'."""


@dataclass
class SimulatedGpu:
    """One device: its hardware file, its actuator, its true values and its noise."""

    name: str
    silicon: Silicon100
    folder: Path
    rng: Random
    actuator: Direct = field(init=False)
    above: int = 0

    def __post_init__(self) -> None:
        journal, self.hardware = self.folder / "journal", self.folder / "hardware.json"
        journal.mkdir(parents=True)
        fake.save(self.hardware, fake.blank(GPU))
        grant: dict[str, Any] = {CLOCK: (510, TOP), POWER_LIMIT: (150, 400)}
        config = ActuatorConfig(state_dir=str(journal), devices=(Granted(match=GPU, grant=grant),))
        hand, originals = DirectHand(self.hardware), RestoreJournal(journal)
        self.actuator = Direct(actuator_of(config, lambda: hand, originals, BOOT, lambda: 0.0))
        self.actuator.replay()

    @property
    def true(self) -> dict[str, float]:
        """The true metrics at the setting of its hardware."""
        values = fake.load(self.hardware)["devices"][GPU]["values"]
        return self.silicon.shows(values[CLOCK] or TOP, values[POWER_LIMIT])

    @property
    def broken(self) -> bool:
        """Whether the setting of its hardware truly breaks the limit."""
        most = LIMIT.bound * self.silicon.shows(TOP, 400)["latency_ms"]
        return self.true["latency_ms"] > most

    def window(self, setting: Setting, time: Time) -> Outcome:
        """Measure a setting through the actuator."""
        self.actuator.acquire(PEER, GPU, 5.0)
        self.actuator.apply(PEER, GPU, dict(setting))
        shown = self.true
        self.above += self.broken
        self.actuator.release(PEER, GPU)
        estimates = {}
        for metric, value in shown.items():
            mean = value * math.exp(self.rng.gauss(0.0, NOISE))
            error = NOISE * mean
            reach = student_t95(PARTS - 1) * error
            estimates[metric] = Estimate(
                mean, error, PARTS, mean - reach, mean + reach, Origin.SIMULATED
            )
        measured = Measurement(estimates=estimates, started_at=time.now(), seconds=WINDOW_S)
        return Outcome(state=TrialState.COMPLETED, measurement=measured)

    def described(self, time: Time) -> Device:
        """Return its description: all devices report the same board, workload and versions."""
        metrics = tuple(Metric(m, Origin.SIMULATED) for m in ("energy_j", "latency_ms", "power_w"))
        return Device(
            id=self.name, kind="nvidia", board="A100 (fake)", driver="1", agent=self.name,
            workload="resnet50", workload_version="1", space=SPACE, metrics=metrics,
            seen_at=time.now(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A device's way to its hold: its windows, the number `above` the limit, and whether it searched."""

    name: str
    windows: int
    above: int
    searched: bool
    offered: bool
    saving: float
    held_above: bool


def verified(count: int = 100, seed: int = 1) -> dict[str, Any]:
    """Return the results of a fleet of `count` devices that reach their holds one after the other."""
    rng, time, store = Random(seed), Time(), memory_store()
    loop = Loop(store, load_policy, time.now, monotonic=time.monotonic)
    odd = dict(zip((count // 2, count * 3 // 4, count), ODD, strict=True))
    held, cold = [], dict[str, Held]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count + 1):
            silicon = ODD[odd[number]] if number in odd else like(rng)
            name = f"odd in {odd[number]}" if number in odd else f"gpu{number}"
            gpu = SimulatedGpu(
                name, silicon, Path(folder) / str(number), Random(f"{seed}/{number}")
            )
            held.append(_hold(loop, gpu, time, f"s{number}", seed + number))
            if number in odd:
                twin = SimulatedGpu(
                    name, silicon, Path(folder) / f"{number}-cold", Random(f"{seed}/{number}")
                )
                cold[name] = _hold(loop, twin, time, f"c{number}", seed + number, transfer=False)
            gpu.actuator.close()
    return _figures(held, cold, count)


def _hold(
    loop: Loop, gpu: SimulatedGpu, time: Time, name: str, seed: int, *, transfer: bool = True
) -> Held:
    """Run one device's study until it holds, and hold its plan through the actuator."""
    active = loop.store.studies.of(gpu.name)
    if active is not None:
        loop.store.studies.revise(active.moved(Phase.STOPPED), "bench", "played again", time.now())
        loop.store.studies.delete(active.id)
    loop.register(gpu.described(time))
    study = Study(
        id=name, devices=(gpu.name,), workload="resnet50", space=SPACE,
        objective=Objective("energy_j"), constraints=(LIMIT,), seed=seed,
        terms=Terms(trials=20, window_s=WINDOW_S, transfer=transfer), phase=Phase.BASELINE,
        created_at=time.now(),
    )  # fmt: skip
    loop.store.studies.add(study, "bench", "created")
    original = Applied(device=gpu.name, setting=SPACE.default, level=Level.ORIGINAL, at=time.now())
    poll = Poll(agent=f"{gpu.name}/1", applied=original)
    for _ in range(MOST_STEPS):
        order = loop.order(gpu.name, poll)
        if isinstance(order, HoldOrder):
            return _ended(loop, gpu, name, order.plan.rows[0].setting)
        assert isinstance(order, Assignment), order
        time.sleep(WINDOW_S)
        loop.trial_reports.record(
            TrialReport.of(order, device=gpu.name, outcome=gpu.window(order.setting, time))
        )  # fmt: skip
    raise AssertionError(f"{gpu.name} does not come to hold")


def _ended(loop: Loop, gpu: SimulatedGpu, name: str, setting: Setting) -> Held:
    gpu.actuator.acquire(PEER, GPU, 5.0)
    gpu.actuator.hold(PEER, GPU, dict(setting), 1000.0)
    trials = loop.store.trials.list(name)
    base = gpu.silicon.shows(TOP, 400)["energy_j"]
    return Held(
        name=gpu.name,
        windows=len(trials),
        above=gpu.above,
        searched=any(t.phase is Phase.TUNING for t in trials),
        offered=bool(loop.store.studies.get(name).transfer.plan),
        saving=1.0 - gpu.true["energy_j"] / base,
        held_above=gpu.broken,
    )


def _figures(held: list[Held], cold: dict[str, Held], count: int) -> dict[str, Any]:
    """Return the windows to the hold of the identical devices, and the end of each odd one."""
    usual = [h for h in held if not h.name.startswith("odd")]
    windows = sorted(h.windows for h in held[:count])
    odd = [h for h in held if h.name.startswith("odd")]
    trusting = [h for h in usual if not h.searched]
    p90 = quantiles(windows, n=10)[-1]
    searched = [h for h in odd[:2] if h.searched]
    return {
        "devices": count,
        "windows, median": median(windows),
        "windows, p90": p90,
        "verified": len(trusting),
        "searched": len(usual) - len(trusting),
        "windows above a limit while verifying": sum(h.above for h in trusting),
        "holds above a limit": sum(h.held_above for h in held),
        "saving, mean": round(sum(h.saving for h in usual) / len(usual), 4),
        "odd": {
            h.name: {
                "windows": h.windows,
                "searched": h.searched,
                "plan of like studies offered": h.offered,
                "windows above": h.above,
                "windows above without siblings": cold[h.name].above,
                "saving": round(h.saving, 4),
            }
            for h in odd
        },
        "first": [h.windows for h in held[:12]],
        "bounds": {
            "median at most 6 windows": median(windows) <= 6,
            "p90 at most 8 windows": p90 <= 8,
            "both odd ones searched": len(searched) == 2,
            "no limit broken by trust": not any(
                h.above or h.held_above for h in [*trusting, *odd[:2]] if h.offered
            ),
        },
    }
