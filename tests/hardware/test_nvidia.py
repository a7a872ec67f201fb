"""A real NVIDIA GPU, read only. Clocks and limits are written only with JOULETUNE_HARDWARE_WRITE=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest

from agents.devices.nvidia import device
from agents.devices.nvidia.clocks import look
from agents.devices.nvidia.energy import check_counter
from agents.devices.nvidia.knobs import CLOCK, LIMIT, TOLERANCE_MHZ, NvidiaKnobs
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.offers import refusals
from agents.host.host import HostClock
from tests.hardware.conftest import ROOT

CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
REPORT = Path("build/hardware-report.json")


def test_the_gpu_is_found_with_ascending_lists(knobs: NvidiaKnobs) -> None:
    assert knobs.uuid.startswith("GPU-")
    assert knobs.board and knobs.epoch == knobs.epoch
    for name, values in knobs.ranges().items():
        assert len(values) > 1, name
        assert all(isinstance(a, int) and isinstance(b, int) and a < b for a, b in pairwise(values))
    for name in (CLOCK, LIMIT):
        assert (name in knobs.ranges()) != (name in refusals(Gpu(knobs.uuid)))
    assert set(knobs.ranges()) <= set(knobs.read()), "a lock is told also where it cannot be set"


def test_the_energy_counter_agrees_with_power_under_load(
    knobs: NvidiaKnobs, loaded: dict[str, str]
) -> None:
    time.sleep(3.0)
    check = check_counter(Gpu(knobs.uuid), HostClock())
    assert check is not None and check.trusted


def test_the_clock_rises_under_load(knobs: NvidiaKnobs, loaded: dict[str, str]) -> None:
    time.sleep(1.0)
    seen = look(Gpu(knobs.uuid))
    assert seen.loaded
    lowest = knobs.ranges().get(CLOCK, (0,))[0]
    assert isinstance(lowest, int) and seen.sm_mhz > lowest


def test_computing_processes_are_listed(knobs: NvidiaKnobs, loaded: dict[str, str]) -> None:
    gpu = Gpu(knobs.uuid)
    processes = gpu.call("processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
    assert processes, "the server computes, so somebody must be seen to"


def test_a_window_is_measured(knobs: NvidiaKnobs, loaded: dict[str, str], tmp_path: Path) -> None:
    side = device.attach(
        knobs.uuid, socket=tmp_path / "none", state_dir=tmp_path, clock=HostClock()
    )
    window = side.meter.start()
    time.sleep(3.0)
    shown = window.stop()
    assert 30.0 < shown.totals["energy_j"] < 3.0 * 1500.0
    assert side.space.knobs == ()


def test_the_doctor_examines_it(knobs: NvidiaKnobs) -> None:
    findings = json.loads(console("doctor", "--json"))["findings"]
    (finding,) = [f for f in findings if f["about"] == "nvidia:0"]
    assert finding["there"] and knobs.board in finding["seen"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_batch_size_alone_is_tuned(
    knobs: NvidiaKnobs, loaded: dict[str, str], tmp_path: Path
) -> None:
    options = ["--device", f"nvidia:{knobs.uuid}", "--workload", loaded["url"]]
    options += ["--policy", "polythrottle", "--constraint", "latency_p99_ms <= 4x baseline"]
    options += ["--trials", "6", "--window", "5", "--json", "--state-dir", str(tmp_path)]
    result = json.loads(console("run", *options, JOULETUNE_ACTUATOR=str(tmp_path / "none")))
    assert {name for t in result["trials"] for name in t["setting"]} == {"batch_size"}
    assert result["baseline"]["metrics"]["energy_j"]["mean"] > 0.0
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(
        json.dumps({"board": knobs.board, "driver": Gpu(knobs.uuid).driver(), **result}, indent=2)
    )


@pytest.mark.skipif(
    os.environ.get("JOULETUNE_HARDWARE_WRITE") != "1",
    reason="clocks are written only with JOULETUNE_HARDWARE_WRITE=1",
)
def test_a_lock_follows_under_load_and_is_undone(
    knobs: NvidiaKnobs, loaded: dict[str, str]
) -> None:
    gpu, values = Gpu(knobs.uuid), knobs.ranges()[CLOCK]
    middle = values[len(values) // 2]
    assert isinstance(middle, int)
    try:
        knobs.write(CLOCK, middle)
        time.sleep(3.0)
        assert look(gpu).sm_mhz <= middle + TOLERANCE_MHZ
    finally:
        knobs.write(CLOCK, None)
    time.sleep(3.0)
    assert look(gpu).sm_mhz > middle + TOLERANCE_MHZ


def console(*arguments: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
