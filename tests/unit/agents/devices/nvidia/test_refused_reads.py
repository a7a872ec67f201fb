"""Every optional reading of a GPU may be refused with any error: it is then unknown, the rest remains.

NVML's API reference gives NO_PERMISSION for an unprivileged process on a GPU with MIG on,
NOT_SUPPORTED for boards and guests without a sensor, FUNCTION_NOT_FOUND for older drivers, but no
complete list.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pynvml
import pytest

from agents.devices.nvidia import device
from agents.devices.nvidia.diagnosis import examine
from agents.target.side import Side
from tests.nvml.fake import A100, FakeNvml
from tuner.core import FOREIGN_LOAD, ActuationError, MeasurementError

pytestmark = pytest.mark.usefixtures("sparse_check")

OPTIONAL = [
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetClock",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
]
GONE = {15, 16, 28}
RESTARTED = {1, 9, 18}
CODES = [code for code in (*range(1, 30), 999) if code != 5]


def attach(nvml: FakeNvml, folder: Path) -> Side:
    return device.attach(
        A100, socket=folder / "no.sock", state_dir=folder, clock=nvml, every=lambda *_: lambda: None
    )


def measured(nvml: FakeNvml, folder: Path) -> dict[str, str]:
    """Attach, measure a window, and return its notes."""
    side = attach(nvml, folder)
    started = side.meter.start()
    nvml.sleep(0.5)
    shown = started.stop()
    side.close()
    assert shown.totals["foreign_s"] == 0.0
    return dict(shown.notes)


@pytest.fixture
def known(nvml: FakeNvml, tmp_path: Path) -> Path:
    """Return a folder with the result of the energy counter's check, which takes long."""
    nvml.set("noise", 0.0)
    nvml.sleep(30.0)
    measured(nvml, tmp_path)
    return tmp_path


@pytest.mark.parametrize("call", OPTIONAL)
def test_a_read_that_is_refused_in_any_words_is_unknown(
    nvml: FakeNvml, known: Path, call: str
) -> None:
    for code in (*CODES, 0):
        nvml.refuse(call, code)
        if code in GONE | RESTARTED:
            with suppress(
                MeasurementError, ActuationError
            ):  # the GPU is lost, or its driver was replaced
                measured(nvml, known)
        else:
            notes = measured(nvml, known)
            if call == "nvmlDeviceGetComputeRunningProcesses" and code:
                assert "unknown" in notes[FOREIGN_LOAD]


@pytest.mark.parametrize("code", [3, 4, 6, 13, 27])
def test_the_doctor_has_every_line_though_all_of_them_are_refused(
    nvml: FakeNvml, tmp_path: Path, code: int
) -> None:
    nvml.sleep(3.0)
    usual = {s.about for s in examine(tmp_path, tmp_path / "no.sock", nvml)}
    for call in OPTIONAL:
        if call not in (
            "nvmlDeviceGetName",
            "nvmlDeviceGetVirtualizationMode",
            "nvmlDeviceGetArchitecture",
        ):
            nvml.refuse(call, code)
    symptoms = {s.about: s for s in examine(tmp_path, tmp_path / "no.sock", nvml)}
    assert {a for a in usual if a.startswith("nvidia:0")} <= symptoms.keys()
    assert not symptoms["nvidia:0: energy"].well
    assert "unknown" in symptoms["nvidia:0: foreign power limit"].seen


def test_under_mig_an_agent_without_rights_measures_the_board(nvml: FakeNvml, known: Path) -> None:
    nvml.set("mig", 1.0)
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        nvml.refuse(call, pynvml.NVML_ERROR_NO_PERMISSION)
    assert "Insufficient Permissions" in measured(nvml, known)[FOREIGN_LOAD]
    assert "MIG is on" in attach(nvml, known).shared
