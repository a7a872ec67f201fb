"""The watch over a device that only clock ceilings cap."""

from __future__ import annotations

from pathlib import Path

from agents.agent.power_guard import LOOK_S, PowerGuard
from tests.errors import raised
from tests.fakes import Rig
from tuner.core import CapStep, MeasurementError

STEP = CapStep(0.0, 110.0, {"gpu.clock_mhz": 870.0})


def seen(rig: Rig, step: CapStep = STEP, looks: int = 3) -> list[float]:
    guard, shown = PowerGuard(rig.target, rig.time), []
    for _ in range(looks + 2):
        shown.append(guard.above_w(step))
        rig.time.sleep(LOOK_S + 0.1)
    return shown


def test_power_above_the_ceilings_counted_watts_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path, shows=lambda began, now: {"energy_j": 130.0 * now})
    assert max(seen(rig)) > 129.0
    assert max(seen(rig, CapStep(0.0, 140.0, STEP.at_most))) == 0.0


def test_without_a_meter_nothing_passes_for_watched(tmp_path: Path) -> None:
    rig = Rig(tmp_path, listed=("latency_p99_ms",))
    with raised(MeasurementError, "not watched"):
        seen(rig)
