"""Fine-tuning beside inference on a simulated device: its turns, and its end."""

from __future__ import annotations

import pytest

from agents.devices.simulated import Faults, FineTuning, SimulatedDevice, attach
from agents.devices.simulated.presets import PRESETS
from agents.target.side import Side
from tests.errors import raised
from tuner.core import Conflict, DeviceLost, InvalidInput, Reading

ENDLESS = 10**6


def board(preset: str = "tx2", seed: int = 0) -> tuple[SimulatedDevice, Side]:
    device = SimulatedDevice(PRESETS[preset], "resnet50", seed=seed)
    device.sleep(120.0)
    return device, attach(device)


def window(side: Side, device: SimulatedDevice, seconds: float = 20.0) -> Reading:
    opened = side.meter.start()
    device.sleep(seconds)
    return opened.stop()


def job(gflop: float, intensity: float = 1000.0, steps: int = ENDLESS) -> FineTuning:
    return FineTuning(flop=gflop * 1e9, intensity=intensity, steps=steps)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_step_as_long_as_a_batch_computes_doubles_the_work(preset: str) -> None:
    device, side = board(preset)
    alone = window(side, device)
    roof, work = device.preset.roof, device.work
    batch = device.preset.point(device.read()).batch
    computing_ms = work.compute_fixed_ms + work.compute_ms * batch
    device.fine_tune(job(computing_ms / 1000.0 * roof.flop_per_s / 1e9))
    device.sleep(60.0)
    shared = window(side, device)
    longer = shared.estimates["latency_mean_ms"].mean / alone.estimates["latency_mean_ms"].mean
    assert 1.2 < longer < 2.1  # all of the time if only computing takes time
    assert shared.estimates["throughput_per_s"].mean == pytest.approx(
        alone.estimates["throughput_per_s"].mean / longer, rel=0.05
    )
    assert shared.estimates["energy_j"].mean > 1.1 * alone.estimates["energy_j"].mean


def test_the_same_work_with_more_memory_traffic_takes_longer() -> None:
    means = []
    for intensity in (1000.0, 2.0):
        device, side = board()
        device.fine_tune(job(50.0, intensity))
        means.append(window(side, device).estimates["latency_mean_ms"].mean)
    assert means[1] > 1.5 * means[0]


def test_a_slower_clock_slows_the_fine_tuning_too() -> None:
    seconds = []
    for clock in (1300.5, 624.75):
        device, _ = board()
        device.apply({"gpu.clock_mhz": clock})
        device.sleep(5.0)
        began = device.monotonic()
        device.fine_tune(job(100.0, steps=50))
        while device.fine_tuning is not None:
            device.sleep(0.1)
        seconds.append(device.monotonic() - began)
    assert seconds[1] > 1.6 * seconds[0]


def test_fine_tuning_ends_with_its_last_step_and_leaves_nothing_behind() -> None:
    device, side = board()
    before = window(side, device).estimates["latency_mean_ms"].mean
    device.fine_tune(job(100.0, steps=20))
    opened = side.meter.start()
    device.sleep(60.0)
    during = opened.stop()
    assert device.fine_tuning is None
    share = during.estimates["finetuning_share"].mean
    assert 0.0 < share < 1.0
    assert during.estimates["finetuning_gflop"].mean == pytest.approx(100.0)
    assert during.estimates["finetuning_flop_per_byte"].mean == pytest.approx(1000.0)
    turn_s = 60.0 * share / 20
    assert turn_s == pytest.approx((before + 100e9 / 0.666e12 * 1000.0) / 1000.0, rel=0.15)
    after = window(side, device)
    assert after.estimates["latency_mean_ms"].mean == pytest.approx(before, rel=0.03)
    assert not any(name.startswith("finetuning") for name in after.estimates)


def test_the_number_of_readings_changes_nothing() -> None:
    figures = []
    for looks in (1, 40):
        device, side = board(seed=3)
        device.fine_tune(job(100.0, steps=30))
        opened = side.meter.start()
        for _ in range(looks):
            device.sleep(40.0 / looks)
        shown = opened.stop()
        figures.append((shown.totals["energy_j"], shown.estimates["finetuning_share"].mean))
    assert figures[0] == pytest.approx(figures[1], rel=1e-6)


def test_a_second_fine_tuning_job_is_refused() -> None:
    device, _ = board()
    device.fine_tune(job(10.0))
    with raised(Conflict, "already"):
        device.fine_tune(job(10.0))


def test_a_device_that_is_lost_starts_nothing() -> None:
    device, _ = board()
    device.faults = Faults(lost=True)
    with pytest.raises(DeviceLost):
        device.fine_tune(job(10.0))
    assert device.fine_tuning is None


@pytest.mark.parametrize(
    ("gflop", "intensity", "steps"), [(0.0, 1.0, 1), (1.0, -1.0, 1), (1.0, 1.0, 0)]
)
def test_a_request_without_work_is_refused(gflop: float, intensity: float, steps: int) -> None:
    with pytest.raises(InvalidInput, match="cannot be"):
        job(gflop, intensity, steps)
