"""A job's energy by the GPU's own counter."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.job.keeper import CountedEnergy, counter_of
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml"]


def counted(nvml: FakeNvml) -> CountedEnergy:
    energy = counter_of(A100, Path("/"))
    energy.look()
    return energy


def test_joules_are_the_counters(nvml: FakeNvml) -> None:
    nvml.set("load", 1.0)
    energy, before = counted(nvml), nvml.get("energy_j")
    for _ in range(5):
        nvml.sleep(2.0)
        energy.look()
    report = energy.reported()
    drawn = nvml.get("energy_j") - before
    assert report["energy_j"] == pytest.approx(drawn, abs=2.0 * 0.1 * drawn / 10.0)


@pytest.mark.parametrize(("fault", "why"), [(2.0, "reset"), (3.0, "counter")])
def test_a_counter_that_was_reset_or_is_gone_gives_no_joules(
    nvml: FakeNvml, fault: float, why: str
) -> None:
    nvml.set("load", 1.0)
    energy = counted(nvml)
    nvml.sleep(2.0)
    energy.look()
    nvml.set("counter", fault)
    nvml.sleep(2.0)
    energy.look()
    nvml.set("counter", 0.0)
    nvml.sleep(2.0)
    energy.look()
    assert "energy_j" not in energy.reported()
    assert why in str(energy.reported()["refused"])
