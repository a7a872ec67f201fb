"""No rule contradicts an honest window; `make witnesses` judges 10,000 of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.devices.cpu.energy import find_energy
from agents.devices.nvidia.device import attach
from agents.target.host_meter import HostMeter
from agents.target.joules import in_background
from agents.target.side import NothingToSet, Side
from agents.target.target import Target
from agents.target.window import TargetWindow, Usage
from tests.builders import START, Time
from tests.nvml.fake import A40, A100, FakeNvml
from tests.nvml.fixtures import library, nvml
from tuner.core import Clock, Measurement, Metric, ReportedWindow, Space, demand

__all__ = ["library", "nvml"]
WINDOWS = int(os.environ.get("JOULETUNE_HONEST_WINDOWS", "120"))
PRESETS = ("a100", "a40", "orin", "tx2")
USAGE = Usage(4, lambda: 0.0)
READS = (3, 12)


def measured(side: Side, clock: Clock, rng: random.Random, between: Callable[[], None]) -> None:
    """Measure a window of some readings, and have every rule judge it. Raises MeasurementError."""
    window = TargetWindow(Target((side,)), clock, USAGE)
    try:
        for _ in range(rng.randint(*READS)):
            clock.sleep(rng.uniform(0.15, 2.0))
            between()
            window.read()
        window.stop()
    except BaseException:
        window.discard()
        raise
    estimates = {n: e for n, e in window.estimates().items() if e.mean > 0.0}
    report = Measurement(
        estimates=estimates, started_at=START, seconds=window.seconds, load=window.load()
    )
    demand(ReportedWindow(report, {}))


@pytest.mark.parametrize("preset", PRESETS)
def test_of_a_simulated_device(preset: str) -> None:
    rng = random.Random(preset)
    side = open_device(f"simulated:{preset}", seed=1, state_dir=None)
    assert side.clock is not None
    for _ in range(WINDOWS // (3 * len(PRESETS))):
        side.actuator.apply({k.name: rng.choice(k.values) for k in side.space.knobs})
        measured(side, side.clock, rng, lambda: None)


@pytest.mark.parametrize("idle_ratio", [1.0, 0.57])
@pytest.mark.parametrize("gpu", [0, 1])
def test_of_the_fake_gpu_with_its_counters_steps(
    nvml: FakeNvml, gpu: int, idle_ratio: float
) -> None:
    """Under load, idle, and with a load that comes and goes, by the counter's own steps."""
    rng = random.Random(gpu)
    nvml.set("idle_ratio", idle_ratio, gpu)  # zeus issue 181
    side = attach(
        (A100, A40)[gpu],
        socket=Path("/nonexistent/a.sock"),
        state_dir=None,
        clock=nvml,
        every=lambda seconds, job: lambda: None,
    )
    for n in range(WINDOWS // 12):
        changes = n % 3 == 2
        nvml.set("busy", float(n % 3 > 0), gpu)

        def between(changes: bool = changes) -> None:
            if changes:
                nvml.set("busy", float(rng.random() < 0.5), gpu)

        measured(side, nvml, rng, between)


def test_of_rapl_zones_over_wraps(tmp_path: Path) -> None:
    """Two packages of two dies with DRAM, each with a counter of its own that wraps within minutes."""
    rng, clock, most_uj = random.Random(7), Time(), 2**32 // 10
    zones = dict(zones_below(tmp_path, most_uj, rng))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  100 0 0 1000 0 0 0 0 0 0\n")
    source = find_energy(tmp_path, clock, in_background)
    side = Side(
        name="cpu",
        kind="cpu",
        board="",
        version="",
        space=Space(()),
        metrics=(Metric("energy_j"), Metric("power_w")),
        actuator=NothingToSet(),
        meter=HostMeter(
            stat=tmp_path / "proc/stat",
            joules=source.open,
            watch=lambda: lambda: False,
            ceilings=lambda: (),
            clock=clock,
        ),
    )

    def between() -> None:
        for file, (uj, watts) in zones.items():
            grown = uj + round(1e5 * watts * rng.uniform(0.9, 1.1))
            zones[file] = (grown, watts)
            file.write_text(f"{grown % (most_uj + 1)}\n")

    for _ in range(WINDOWS // 3):
        watts = rng.uniform(5.0, 90.0)
        for file, (uj, _) in zones.items():
            zones[file] = (uj, watts)
        measured(side, ShortSteps(clock), rng, between)


class ShortSteps:
    """A clock on which every wait is a tenth of a second: RAPL is read before it wraps twice."""

    def __init__(self, clock: Time) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(0.1)


def zones_below(
    root: Path, most_uj: int, rng: random.Random
) -> Iterator[tuple[Path, tuple[int, float]]]:
    """Write a tree of zones and yield their counters."""
    for n in range(4):
        for folder, name in (
            (f"intel-rapl:{n}", f"package-{n // 2}-die-{n % 2}"),
            (f"intel-rapl:{n}:0", "dram"),
        ):
            place = root / "sys/class/powercap" / folder
            place.mkdir(parents=True)
            start_uj = rng.randint(0, most_uj)
            (place / "name").write_text(f"{name}\n")
            (place / "max_energy_range_uj").write_text(f"{most_uj}\n")
            (place / "energy_uj").write_text(f"{start_uj}\n")
            yield place / "energy_uj", (start_uj, 0.0)
