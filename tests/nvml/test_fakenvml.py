"""The fake NVML against NVIDIA's documents, and against users' reports of real boards."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.nvml.fake import A40, A100, FakeNvml, build_tool
from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml"]

CODES = [code for code in range(1, 30) if code != 5]
"""nvmlReturn_t of nvml.h 13.3: 1 to 29, of which 5 is no longer used, and 999."""
READS = {
    "nvmlDeviceGetPowerManagementLimit": (),
    "nvmlDeviceGetEnforcedPowerLimit": (),
    "nvmlDeviceGetUUID": (),
    "nvmlDeviceGetClock": (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT),
    "nvmlDeviceGetComputeRunningProcesses": (),
    "nvmlDeviceGetPersistenceMode": (),
}


def handle(gpu: int) -> object:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(gpu)


@pytest.mark.parametrize("code", [*CODES, 999])
@pytest.mark.parametrize("call", READS)
def test_any_call_answers_any_error_on_one_gpu_alone(nvml: FakeNvml, call: str, code: int) -> None:
    first, second = handle(0), handle(1)
    nvml.refuse(call, code)
    with pytest.raises((pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)) as caught:
        getattr(pynvml, call)(first, *READS[call])
    if isinstance(caught.value, pynvml.NVMLError):  # another class for FUNCTION_NOT_FOUND
        assert caught.value.value == code
    getattr(pynvml, call)(second, *READS[call])
    nvml.refuse(call, 0)
    getattr(pynvml, call)(first, *READS[call])


def test_a_gpu_whose_handle_is_refused_leaves_the_others_theirs(nvml: FakeNvml) -> None:
    nvml.refuse("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_NO_PERMISSION)
    with pytest.raises(pynvml.NVMLError):
        handle(0)
    assert pynvml.nvmlDeviceGetUUID(handle(1)) == A40
    assert pynvml.nvmlDeviceGetCount() == 2


def test_eight_gpus_have_eight_uuids(nvml: FakeNvml) -> None:
    nvml.set("gpus", 8.0)
    uuids = [pynvml.nvmlDeviceGetUUID(handle(gpu)) for gpu in range(8)]
    assert uuids[:2] == [A100, A40]
    assert len(set(uuids)) == 8
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuids[7])) == uuids[7]


def sm_mhz(gpu: object) -> int:
    return int(pynvml.nvmlDeviceGetClock(gpu, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT))


def reasons(gpu: object) -> int:
    return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))


def test_a_board_misses_its_listed_clocks_without_a_reason_bit(nvml: FakeNvml) -> None:
    # RTX A6000: 2,100 MHz listed, 1,935 MHz at best; lower without any reason bit: LACT 1128.
    gpu = handle(0)
    nvml.set("reach_mhz", 1260.0)
    nvml.sleep(2.0)
    assert (sm_mhz(gpu), reasons(gpu)) == (1260, 0)
    assert max(pynvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 1215)) == 1410
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 210, 1005)
    nvml.sleep(2.0)
    assert (sm_mhz(gpu), reasons(gpu)) == (1005, 0)


def test_at_part_load_the_clock_adapts(nvml: FakeNvml) -> None:
    gpu = handle(0)
    nvml.set("load", 0.5)
    nvml.sleep(2.0)
    assert (sm_mhz(gpu), reasons(gpu)) == (810, 0)
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 48


def test_a_lost_lock_is_not_announced(nvml: FakeNvml) -> None:
    # nvidia-smi -rgc, or a resume: only the clock shows it.
    gpu = handle(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 210, 1005)
    nvml.sleep(2.0)
    nvml.set("lose_locks", 1.0)
    nvml.sleep(0.2)
    assert sm_mhz(gpu) == 1410
    assert nvml.get("lock_max") == 0


def test_an_enforced_limit_is_below_the_requested_one(nvml: FakeNvml) -> None:
    # nvml.h, nvmlDeviceGetEnforcedPowerLimit: the minimum of various power limiters.
    gpu = handle(0)
    nvml.set("enforced_w", 200.0)
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 300000)
    nvml.sleep(2.0)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(gpu) == 300000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 200000
    assert pynvml.nvmlDeviceGetPowerUsage(gpu) <= 230000
    assert reasons(gpu) == 4


def test_a_gpu_takes_its_time_at_its_first_handle(nvml: FakeNvml) -> None:
    # nvml.h: nvmlInit_v2 initialises no GPU, nvmlDeviceGetHandleByIndex_v2 the requested one.
    nvml.set("init_s", 0.2, gpu=1)
    pynvml.nvmlInit()
    for gpu, slow in ((0, False), (1, True), (1, False)):
        began = time.monotonic()
        pynvml.nvmlDeviceGetHandleByIndex(gpu)
        assert (time.monotonic() - began >= 0.2) is slow


def counted_w(nvml: FakeNvml, gpu: object) -> float:
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    nvml.sleep(10.0)
    after = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    return float(after - before) / 1e4


def field_w(gpu: object, field: int, scope: int) -> float | None:
    value = pynvml.nvmlDeviceGetFieldValues(gpu, [(field, scope)])[0]
    return value.value.uiVal / 1000.0 if value.nvmlReturn == pynvml.NVML_SUCCESS else None


def test_an_idle_counter_shows_a_part_and_a_loaded_one_all(nvml: FakeNvml) -> None:
    # zeus issue 181: 187 J by the counter, 327 J by power, in 5 idle seconds.
    gpu = handle(0)
    nvml.set("idle_ratio", 0.57)
    for busy, share in ((0.0, 0.57), (1.0, 1.0)):
        nvml.set("busy", busy)
        nvml.sleep(5.0)
        energy_j = nvml.get("energy_j")
        assert counted_w(nvml, gpu) * 10.0 == pytest.approx(
            share * (nvml.get("energy_j") - energy_j), rel=0.05
        )


def test_the_counter_of_a_superchip_is_the_modules(nvml: FakeNvml) -> None:
    # zeus PR 172: GH200's counter covers the CPU and its memory, too.
    gpu, plain = handle(0), handle(1)
    nvml.set("module_w", 150.0)
    nvml.set("noise", 0.0)
    nvml.sleep(5.0)
    own, module = field_w(gpu, 186, 0), field_w(gpu, 186, 1)
    assert own is not None and module == pytest.approx(own + 150.0, abs=1.0)
    assert counted_w(nvml, gpu) == pytest.approx(module, rel=0.02)
    assert field_w(plain, 186, 1) is None and field_w(gpu, 186, 2) is None
    nvml.set("no_gpu_scope", 1.0)
    assert field_w(gpu, 186, 0) is None and field_w(gpu, 186, 1) is not None


def test_memory_that_is_the_hosts_has_no_clocks(nvml: FakeNvml) -> None:
    # GB10 (zeus PR 242, nvgpu PR 37): memory calls are not supported.
    nvml.set("uma", 1.0)
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetSupportedMemoryClocks(handle(0))
    assert caught.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED


def pids(gpu: object) -> list[int]:
    return [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)]


def test_a_pid_namespace_hides_processes_or_has_other_numbers(nvml: FakeNvml) -> None:
    # NVIDIA/nvidia-docker issue 1483, Syllo/nvtop issue 149.
    gpu = handle(0)
    nvml.set("own_pid", 100.0)
    assert pids(gpu) == [100]
    nvml.set("pid_offset", 40_000.0)
    assert pids(gpu) == [40_100]
    nvml.set("no_processes", 1.0)
    assert pids(gpu) == []


def test_power_profiles_have_requested_and_enforced_masks(nvml: FakeNvml) -> None:
    # nvmlWorkloadPowerProfileCurrentProfiles_v1_t: "post all arbitrations among the requested profiles".
    gpu = handle(0)
    current = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    read = pynvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles
    with pytest.raises(pynvml.NVMLError) as caught:
        read(gpu, ctypes.byref(current))
    assert caught.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED
    for name, mask in (("profiles", 7), ("requested_profiles", 6), ("profile_conflicts", 6)):
        nvml.set(name, float(mask))
    read(gpu, ctypes.byref(current))
    masks = (current.perfProfilesMask, current.requestedProfilesMask, current.enforcedProfilesMask)
    assert [mask.mask[0] for mask in masks] == [7, 6, 2]
    known = pynvml.c_nvmlWorkloadPowerProfileProfilesInfo_v1_t()
    pynvml.nvmlDeviceWorkloadPowerProfileGetProfilesInfo(gpu, ctypes.byref(known))
    assert [known.perfProfile[n].conflictingmask.mask[0] for n in (0, 1, 2)] == [0, 4, 2]


def test_a_request_for_a_profile_leaves_the_others_and_refuses_what_the_board_lacks(
    nvml: FakeNvml,
) -> None:
    gpu, asked = handle(0), pynvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
    add = pynvml.nvmlDeviceWorkloadPowerProfileSetRequestedProfiles
    remove = pynvml.nvmlDeviceWorkloadPowerProfileClearRequestedProfiles

    def code(call: Callable[[object, object], object], mask: int) -> int:
        asked.requestedProfilesMask.mask[0] = mask
        try:
            call(gpu, ctypes.byref(asked))
        except pynvml.NVMLError as error:
            return int(error.value)
        return 0

    assert code(add, 2) == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.set("profiles", 7.0)
    nvml.set("requested_profiles", 4.0)
    assert (code(add, 2), nvml.get("requested_profiles")) == (0, 6)
    assert (code(remove, 2), nvml.get("requested_profiles")) == (0, 4)
    assert code(add, 8) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    asked.version = 1
    assert code(add, 2) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_the_shell_tool_sets_the_same_state(nvml: FakeNvml, tmp_path: Path) -> None:
    tool = build_tool(tmp_path)
    env = dict(nvml.environment())
    subprocess.run([tool, "set", "1", "thermal_mhz", "900"], env=env, check=True)
    assert nvml.get("thermal_mhz", gpu=1) == 900
    shown = subprocess.run(
        [tool, "get", "1", "thermal_mhz"], env=env, check=True, capture_output=True
    )
    assert float(shown.stdout) == 900
    wrong = subprocess.run(
        [tool, "set", "0", "no_such", "1"], env=env, check=False, capture_output=True
    )
    assert wrong.returncode == 1
