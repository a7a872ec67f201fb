"""Each NVML call fails with each error on one GPU: the other GPU and all other data remain.

NVML's API reference gives NO_PERMISSION for an unprivileged process on a GPU with MIG on, NOT_SUPPORTED for
boards and guests without a sensor, FUNCTION_NOT_FOUND for older drivers, but no complete list.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pynvml
import pytest

from agents.devices.nvidia import device
from agents.devices.nvidia.diagnosis import examine
from agents.devices.nvidia.knobs import (
    CLOCK,
    LIMIT,
    LOST,
    MEMORY,
    PROFILE,
    RESTARTED,
    discover,
)
from agents.devices.nvidia.nvml import GONE, translated
from agents.target.side import Side
from tests.nvml.fake import A40, A100, FakeNvml
from tuner.core import FOREIGN_LOAD, MeasurementError
from tuner.errors import ActuationError, DeviceLost, KnobRefused

pytestmark = pytest.mark.usefixtures("sparse_check")

CODES = [*(code for code in range(1, 30) if code != 5), 999]
READS = (
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
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetSupportedGraphicsClocks",
    "nvmlDeviceGetSupportedMemoryClocks",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
)
SETTERS = {
    CLOCK: ("nvmlDeviceSetGpuLockedClocks", 1005),
    LIMIT: ("nvmlDeviceSetPowerManagementLimit", 200),
    MEMORY: ("nvmlDeviceSetMemoryLockedClocks", 405),
    PROFILE: ("nvmlDeviceWorkloadPowerProfileSetRequestedProfiles", "max-q"),
}
LASTING = {3, 4, 13, 17, 24, 25, 26}


@pytest.mark.parametrize("call", READS)
def test_any_answer_of_a_read_leaves_the_other_gpu_usable(nvml: FakeNvml, call: str) -> None:
    for code in CODES:
        nvml.refuse(call, code)
        first, second = discover()
        for ask in (first.ranges, first.read):
            try:
                ask()
            except ActuationError:
                continue
        del first
        assert second.uuid == A40 and set(second.ranges()) == {CLOCK, MEMORY, LIMIT}
        assert second.read()[LIMIT] == 300


@pytest.mark.parametrize("code", [3, 4, 13, 15, 18, 999])
@pytest.mark.parametrize("call", [*READS, "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
def test_any_answer_of_one_gpu_leaves_the_doctors_lines_for_both(
    nvml: FakeNvml, tmp_path: Path, call: str, code: int
) -> None:
    nvml.refuse(call, code)
    nvml.sleep(3.0)
    symptoms = {s.about: s for s in examine(tmp_path, tmp_path / "no.sock", nvml)}
    assert "nvidia:0" in symptoms
    assert A40 in symptoms["nvidia:1"].seen
    assert all(s.cure or s.well for s in symptoms.values())


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("knob", SETTERS)
def test_a_setter_that_never_works_is_distinguished_from_one_that_fails_now(
    nvml: FakeNvml, knob: str, code: int
) -> None:
    call, value = SETTERS[knob]
    nvml.set("profiles", 7.0, gpu=1)
    gpu = discover()[1]
    nvml.refuse(call, code, gpu=1)
    with pytest.raises(ActuationError) as caught:
        gpu.write(knob, value)
    assert isinstance(caught.value, KnobRefused) is (code in LASTING)
    assert isinstance(caught.value, DeviceLost) is (code in {1, 6, 9, 15, 16, 18, 28, 999})
    seen = translated(pynvml.NVMLError(code), "a call")
    assert all(e.hint for e in (caught.value, seen)) or code not in {*RESTARTED, *LOST}
    if isinstance(caught.value, KnobRefused):
        assert caught.value.knob == knob and caught.value.hint


def test_a_limit_that_cannot_be_read_is_not_offered_and_a_clock_neither(nvml: FakeNvml) -> None:
    # Laptops report the constraints; the getter and the setter are NOT_SUPPORTED (nvitop 86).
    nvml.refuse("nvmlDeviceGetPowerManagementLimit", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert set(discover()[0].ranges()) == {CLOCK}
    nvml.refuse("nvmlDeviceGetClock", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert discover()[0].ranges() == {}
    assert discover()[0].uuid == A100


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


@pytest.mark.parametrize("call", READS)
def test_a_read_that_is_refused_in_any_words_is_unknown(
    nvml: FakeNvml, known: Path, call: str
) -> None:
    for code in (*CODES, 0):
        nvml.refuse(call, code)
        if code in GONE | RESTARTED:
            with suppress(MeasurementError, ActuationError):
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
    for call in READS:
        if not call.endswith(("Name", "Mode", "Architecture", "ManagementLimit", "Constraints")):
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
