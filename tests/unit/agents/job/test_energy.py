"""A job's energy by the meter of each device's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.job.energy import JobEnergy
from tests.builders import Time
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml"]

ZONES = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "psys"}
PCI = "sys/bus/pci/drivers/amdgpu/0000:03:00.0"


class Job:
    """The energy of one device, and its clock."""

    def __init__(self, uuid: str, driver: str, root: Path) -> None:
        self.clock = Time()
        self.energy = JobEnergy(uuid, driver, root, self.clock)

    def passes(self, seconds: float = 2.0) -> None:
        self.clock.sleep(seconds)
        self.energy.look()


def text(root: Path, name: str, content: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def zones(root: Path, **joules: float) -> None:
    for place, name in ZONES.items():
        folder = f"sys/class/powercap/intel-rapl:{place}"
        text(root, f"{folder}/name", name)
        text(root, f"{folder}/max_energy_range_uj", 262_143_328_850)
        text(root, f"{folder}/energy_uj", int(1e6 * joules.get(name[:4], 1.0)))


def test_joules_are_the_counters(nvml: FakeNvml) -> None:
    nvml.set("load", 1.0)
    job, before = Job(A100, "nvidia", Path("/")), nvml.get("energy_j")
    for _ in range(5):
        nvml.sleep(2.0)
        job.passes()
    report, drawn = job.energy.reported(), nvml.get("energy_j") - before
    assert report["energy_j"] == pytest.approx(drawn, abs=2.0 * 0.1 * drawn / 10.0)
    assert report["error_j"] == pytest.approx(0.1 * drawn / 10.0, rel=0.05)


@pytest.mark.parametrize(("fault", "why"), [(2.0, "reset"), (3.0, "counter")])
def test_a_counter_that_was_reset_or_is_gone_gives_no_joules(
    nvml: FakeNvml, fault: float, why: str
) -> None:
    nvml.set("load", 1.0)
    job = Job(A100, "nvidia", Path("/"))
    for counter in (0.0, fault, 0.0):
        nvml.set("counter", counter)
        nvml.sleep(2.0)
        job.passes()
    report = job.energy.reported()
    assert "energy_j" not in report
    assert why in str(report["refused"])


def test_a_cpu_has_the_joules_of_its_packages_and_their_memory(tmp_path: Path) -> None:
    zones(tmp_path)
    job = Job("cpu", f"cpu:{tmp_path}", tmp_path)
    zones(tmp_path, pack=101.0, core=81.0, dram=21.0, psys=151.0)
    job.passes()
    report = job.energy.reported()
    assert (report["energy_j"], report["seconds"]) == (120.0, 2.0)
    assert "all its users" in str(report["scope"])


def test_a_cpu_without_a_moving_counter_has_no_joules(tmp_path: Path) -> None:
    bare = Job("cpu", "cpu", tmp_path)
    bare.passes()
    assert "no CPU package" in str(bare.energy.reported()["refused"])
    zones(tmp_path)
    still = Job("cpu", "cpu", tmp_path)
    still.passes()
    assert "did not change" in str(still.energy.reported()["refused"])


def test_another_gpu_is_metered_by_its_own_driver_or_not_at_all(tmp_path: Path) -> None:
    zones(tmp_path)
    text(tmp_path, f"{PCI}/hwmon/hwmon0/power1_cap", 200_000_000)
    text(tmp_path, f"{PCI}/hwmon/hwmon0/energy1_input", 5_000_000)
    jobs = [Job("drm:0000:03:00.0", f"drm:{tmp_path}", tmp_path), Job("X-1", "fake:x", tmp_path)]
    jobs.append(Job("drm:0000:99:00.0", "drm", tmp_path))
    zones(tmp_path, pack=101.0)
    text(tmp_path, f"{PCI}/hwmon/hwmon0/energy1_input", 45_000_000)
    for job in jobs:
        job.passes()
    drm, fake, gone = (job.energy.reported() for job in jobs)
    assert drm["energy_j"] == 40.0 and "all its users" in str(drm["scope"])
    assert "driver fake" in str(fake["refused"])
    assert "0000:99:00.0" in str(gone["refused"])
