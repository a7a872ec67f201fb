"""The inference that the fake NVML pretends to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.catalogue import known_truth
from agents.devices.nvidia.knobs import discover
from agents.target.side import Side
from agents.workloads import open_workload, simulated
from agents.workloads.simulated import ROOM, is_there
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import MeterContract
from tests.errors import raised
from tests.nvml.fake import FakeNvml
from tuner.core import InvalidInput, Origin


@pytest.fixture(autouse=True)
def on_the_path(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "LIBRARY", str(nvml.library))


@pytest.fixture
def side(nvml: FakeNvml, tmp_path: Path) -> Side:
    return open_workload("simulated", seed=0, state_dir=tmp_path, clock=nvml)


@pytest.fixture
def later(nvml: FakeNvml) -> Callable[[], None]:
    return lambda: nvml.sleep(2.0)


class TestContracts(SettableContract, MeterContract):
    origin = Origin.SIMULATED


def test_latency_and_rate_are_the_simulated_devices(nvml: FakeNvml, side: Side) -> None:
    setting = {"gpu.clock_mhz": 1005, "gpu.power_limit_w": 400, "batch_size": 8}
    discover()[0].write("gpu.clock_mhz", 1005)
    side.actuator.apply({"batch_size": 8})
    nvml.sleep(5.0)
    window = side.meter.start()
    nvml.sleep(60.0)
    shown = window.stop()
    truth = known_truth("simulated:a100")
    assert truth is not None
    true = truth(setting)
    assert shown.totals["items"] / 60.0 == pytest.approx(true["throughput_per_s"], rel=0.01)
    assert shown.estimates["latency_p50_ms"].mean == pytest.approx(true["latency_p50_ms"], rel=0.01)
    assert shown.estimates["latency_p99_ms"].mean == pytest.approx(true["latency_p99_ms"], rel=0.03)


def test_a_window_longer_than_the_buffer_loses_only_the_oldest_samples(
    nvml: FakeNvml, side: Side
) -> None:
    window = side.meter.start()
    nvml.sleep(100.0)
    assert window.stop().estimates["latency_p50_ms"].n <= ROOM


def test_the_fake_gpu_is_refused_without_its_library(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_there()
    for other in (str(tmp_path / "none.so"), "libc.so.6"):
        monkeypatch.setattr(simulated, "LIBRARY", other)
        assert not is_there()
        with raised(InvalidInput, "NVML"):
            open_workload("simulated", seed=0, state_dir=tmp_path, clock=nvml)
