"""Each NVML call fails with each error on one GPU: the other GPU and all other data remain."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

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
from agents.devices.nvidia.nvml import translated
from tests.nvml.fake import A40, A100, FakeNvml
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
