"""The doctor's findings on NVIDIA GPUs, over the fake NVML."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from agents.devices.nvidia.diagnosis import examine
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, discover
from agents.host.symptoms import Symptom
from tests.nvml.fake import FakeNvml

pytestmark = pytest.mark.usefixtures("sparse_check")


def examined(nvml: FakeNvml, root: Path) -> dict[str, Symptom]:
    nvml.sleep(3.0)
    return {s.about: s for s in examine(root, root / "no.sock", nvml)}


def test_each_gpu_reports_its_knobs_its_meter_and_its_rights(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    symptoms = examined(nvml, tmp_path)
    assert "A100" in symptoms["NVIDIA GPU (NVML)"].seen
    assert symptoms[f"nvidia:0: {CLOCK}"].seen == "210 to 1410, 81 values"
    assert not symptoms[f"nvidia:0: {MEMORY}"].well
    assert symptoms[f"nvidia:1: {MEMORY}"].well
    assert "energy counter" in symptoms["nvidia:1: energy"].seen
    assert "install.sh)" in symptoms["nvidia:0: permission to set"].cure
    assert symptoms["nvidia:0: foreign clock lock"].well
    assert symptoms["nvidia:0: foreign power limit"].well


def test_a_jetson_is_pointed_to_its_own_device(nvml: FakeNvml, tmp_path: Path) -> None:
    """NVML answers on Orin, and supports nothing (HazyResearch/intelligence-per-watt 40)."""
    (tree := tmp_path / "proc/device-tree").mkdir(parents=True)
    (tree / "compatible").write_text("nvidia,p3768\0nvidia,tegra234\0")
    limits = "PowerManagementLimitConstraints"
    for call in ("Clock", "FieldValues", "PowerUsage", limits, "TotalEnergyConsumption"):
        nvml.refuse(f"nvmlDeviceGet{call}", pynvml.NVML_ERROR_NOT_SUPPORTED)
    symptoms = examined(nvml, tmp_path)
    for about in (CLOCK, MEMORY, "energy"):
        symptom = symptoms[f"nvidia:0: {about}"]
        assert symptom.well is None and "`jetson`" in symptom.cure
    assert "nvidia:0: permission to set" not in symptoms  # there is none to grant


def test_existing_power_profiles_are_named(nvml: FakeNvml, tmp_path: Path) -> None:
    assert "nvidia:0: power profiles" not in examined(nvml, tmp_path)
    for name, mask in (("profiles", 7.0), ("requested_profiles", 6.0), ("profile_conflicts", 6.0)):
        nvml.set(name, mask)
    seen = examined(nvml, tmp_path)["nvidia:0: power profiles"].seen
    assert "max-q enforced" in seen and "max-q + compute requested" in seen


def test_foreign_settings_are_detected_with_a_cure(nvml: FakeNvml, tmp_path: Path) -> None:
    knobs = discover()[0]
    knobs.write(CLOCK, 1005)
    assert "1005 MHz" in examined(nvml, tmp_path)["nvidia:0: foreign clock lock"].seen
    knobs.write(CLOCK, None)
    knobs.write(LIMIT, 150)
    symptoms = examined(nvml, tmp_path)
    assert symptoms["nvidia:0: foreign clock lock"].well
    assert "150 W" in symptoms["nvidia:0: foreign power limit"].seen
    assert "nvidia-smi -pl 400" in symptoms["nvidia:0: foreign power limit"].cure


def test_an_idle_gpu_reports_that_a_lock_is_not_visible(nvml: FakeNvml, tmp_path: Path) -> None:
    discover()[0].write(CLOCK, 1005)
    nvml.set("busy", 0.0)
    assert "is not visible" in examined(nvml, tmp_path)["nvidia:0: foreign clock lock"].seen


def test_without_a_driver_the_package_to_install_is_named(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.set("unloaded", 1.0)
    (only,) = examine(tmp_path, tmp_path / "no.sock", nvml)
    assert not only.well and "modprobe" in only.cure
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", _no_library)
    (only,) = examine(tmp_path, tmp_path / "no.sock", nvml)
    assert only.well is None
    vendor = tmp_path / "sys/bus/pci/devices/0000:01:00.0/vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x10de\n")
    (only,) = examine(tmp_path, tmp_path / "no.sock", nvml)
    assert only.well is False and "install" in only.cure


def _no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def test_a_gpu_that_is_lost_does_not_hide_the_other(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.set("lost", 1.0)
    symptoms = examined(nvml, tmp_path)
    assert "A40" in symptoms["nvidia:1"].seen
    assert not symptoms["nvidia:0"].well and "lost" in symptoms["nvidia:0"].seen
    assert "nvidia:0 does not answer" in symptoms["NVIDIA GPU (NVML)"].seen


def test_a_cap_set_out_of_band_does_not_raise_the_limit(nvml: FakeNvml, tmp_path: Path) -> None:
    # A BMC, a DGX's PMU or a GB200 module: nvidia-smi -pl raises nothing there.
    nvml.set("enforced_w", 250.0)
    symptom = examined(nvml, tmp_path)["nvidia:0: foreign power limit"]
    assert not symptom.well and "250 W" in symptom.seen and "another cap applies" in symptom.seen
    assert "nvidia-smi" not in symptom.cure


def test_a_board_below_its_listed_clock_is_not_suspected(nvml: FakeNvml, tmp_path: Path) -> None:
    # RTX A6000: 2,100 MHz listed, 1,935 at best; this cannot be distinguished from a lock (LACT 1128).
    nvml.set("reach_mhz", 1260.0)
    symptom = examined(nvml, tmp_path)["nvidia:0: foreign clock lock"]
    assert symptom.well and "1260 MHz" in symptom.seen
