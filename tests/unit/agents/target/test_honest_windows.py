"""No rule contradicts an honest window; `make witnesses` judges 10,000 of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.devices.cpu.energy import find_energy
from agents.devices.nvidia.device import attach
from agents.host.machine import HostClock
from agents.target.host_meter import HostMeter
from agents.target.joules import in_background
from agents.target.side import NothingToSet, Side
from agents.target.target import Target
from agents.target.window import TargetWindow, Usage
from agents.workloads.http.attach import attach as attach_service
from tests.builders import START, Time
from tests.nvml.fake import A40, A100, FakeNvml
from tests.nvml.fixtures import library, nvml
from tests.unit.agents.workloads.http.test_connections import FILE, LOAD, served
from tuner.core import (
    Clock,
    Measurement,
    MeasurementError,
    Metric,
    ReportedWindow,
    Space,
    demand,
)

__all__ = ["library", "nvml"]
WINDOWS = int(os.environ.get("JOULETUNE_HONEST_WINDOWS", "120"))
PRESETS = ("a100", "a40", "orin", "tx2")
USAGE = Usage(4, lambda: 0.0)
READS = (3, 12)


class Judged:
    """The windows judged by every rule, and the false alarms among them."""

    def __init__(self) -> None:
        self.number, self.alarms = 0, list[str]()

    def judge(self, target: Target, clock: Clock, steps: Iterable[float]) -> None:
        """Measure a window with a reading after each step in s, and judge it by every rule."""
        self.number += 1
        window = TargetWindow(target, clock, USAGE)
        try:
            for seconds in steps:
                clock.sleep(seconds)
                window.read()
            window.stop()
            estimates = {n: e for n, e in window.estimates().items() if e.mean > 0.0}
            report = Measurement(
                estimates=estimates, started_at=START, seconds=window.seconds, load=window.load()
            )
            demand(ReportedWindow(report, {}))
        except MeasurementError as error:
            window.discard()
            self.alarms.append(error.message)


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> Iterator[Judged]:
    """Count windows; at the end print their number, and fail after a false alarm."""
    windows = Judged()
    yield windows
    most = 1.0 - 0.05 ** (1.0 / windows.number)
    print(
        f"{request.node.name}: {windows.number} honest windows, {len(windows.alarms)} false alarms; "
        f"without any, the rate is below {most:.2%} (95 %)"
    )
    assert not windows.alarms


def steps(rng: random.Random, before: Callable[[], None] = lambda: None) -> Iterator[float]:
    """Yield some steps in s, and call `before` ahead of each."""
    for _ in range(rng.randint(*READS)):
        before()
        yield rng.uniform(0.15, 2.0)


@pytest.mark.parametrize("preset", PRESETS)
def test_windows_of_a_simulated_device_are_honest(preset: str, judged: Judged) -> None:
    rng = random.Random(preset)
    side = open_device(f"simulated:{preset}", seed=1, state_dir=None)
    assert side.clock is not None
    for _ in range(WINDOWS // (3 * len(PRESETS))):
        side.actuator.apply({k.name: rng.choice(k.values) for k in side.space.knobs})
        judged.judge(Target((side,)), side.clock, steps(rng))


@pytest.mark.parametrize("idle_ratio", [1.0, 0.57])
@pytest.mark.parametrize("gpu", [0, 1])
def test_of_the_fake_gpu_with_its_counters_steps(
    nvml: FakeNvml, gpu: int, idle_ratio: float, judged: Judged
) -> None:
    """Under load, idle, and with an intermittent load, read at the counter's own steps."""
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

        judged.judge(Target((side,)), nvml, steps(rng, between))


def test_windows_over_wraps_of_rapl_zones_are_honest(tmp_path: Path, judged: Judged) -> None:
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
        judged.judge(Target((side,)), clock, (0.1 for _ in steps(rng, between)))


@pytest.mark.slow
def test_windows_of_this_host_and_a_real_service_are_honest(tmp_path: Path, judged: Judged) -> None:
    """Its CPU, and one worker of uvicorn under our load."""
    rng, clock = random.Random(9), HostClock()
    cpu = open_device("cpu", seed=0, state_dir=None)
    with served("uvicorn", 1, None) as port:
        file = tmp_path / "service.toml"
        file.write_text(FILE.format(port=port, rest=LOAD))
        service = attach_service(f"service:{file}", seed=0, state_dir=tmp_path, clock=clock)
        target = Target((cpu,), service)
        for _ in range(max(5, WINDOWS // 100)):
            judged.judge(target, clock, (rng.uniform(0.02, 0.2) for _ in range(rng.randint(2, 4))))
        target.close()


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
