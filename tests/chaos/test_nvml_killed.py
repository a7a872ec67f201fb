"""kill -9 between every two NVML calls: the real driver over the fake library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agents.actuator.driver import KnobDriver
from agents.actuator.main import ActuatorService
from agents.devices.nvidia import knobs
from tests.chaos.points import Points, count_calls
from tests.chaos.scripts import SCRIPTS
from tests.chaos.theatre import Request, Theatre
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml"]

pytestmark = pytest.mark.timeout(1200)  # a process or more for each point
Count = Callable[[str, int, int], None]

CALLS = (
    "nvmlInit",
    "nvmlDeviceGetHandleByUUID",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks",
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
    "nvmlDeviceWorkloadPowerProfileSetRequestedProfiles",
    "nvmlDeviceWorkloadPowerProfileClearRequestedProfiles",
)
FOUND = {"lock_max": 0.0, "mem_lock": 0.0, "limit_w": 400.0, "requested_profiles": 4.0}
"""The hardware at the beginning; another program has requested the profile of bit 2."""
PROFILES = ("max-p", "max-q")


class NvmlTheatre(Theatre):
    """The hardware is the fake library's state, for any process."""

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.nvml = nvml
        super().__init__(folder)
        (granted,) = self.config.devices
        self.config = replace(self.config, devices=(replace(granted, match=A100),))

    def renew_hardware(self) -> None:
        super().renew_hardware()
        for name, value in FOUND.items():
            self.nvml.set(name, value)

    def of(self, request: Request) -> Request:
        """Return a request to this device."""
        return request

    @property
    def values(self) -> dict[str, Any]:
        return {name: self.nvml.get(name) for name in FOUND}

    def drivers(self, points: Points | None) -> Sequence[KnobDriver]:
        if points:
            count_calls(points, pynvml, {name: f"NVML {name}" for name in CALLS})
        return knobs.discover()

    def check_original(self) -> str:
        if self.values != FOUND:
            return f"left at {self.values}"
        return "a journal is left" if self.journalled else ""


class ProfiledTheatre(NvmlTheatre):
    """The board has power profiles, and each setting requests one."""

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        nvml.set("profiles", 7.0)
        super().__init__(folder, nvml)
        (granted,) = self.config.devices
        more = replace(granted, grant={**granted.grant, knobs.PROFILE: PROFILES})
        self.config = replace(self.config, devices=(more,))

    def of(self, request: Request) -> Request:
        """Return a request with a profile in its setting."""
        if "setting" not in request:
            return request
        profile = PROFILES[request["verb"] == "hold"]
        return {**request, "setting": {**request["setting"], knobs.PROFILE: profile}}


class SleepingTheatre(NvmlTheatre):
    """The machine suspends repeatedly, and the driver keeps its locks."""

    loses = False

    async def actuator(
        self, points: Points | None = None, clock: Points | None = None
    ) -> ActuatorService:
        made = await super().actuator(points, clock)
        slept_s = 0.0

        def suspended_s() -> float:
            nonlocal slept_s
            slept_s += 100.0
            if self.loses:
                self.nvml.set("lose_locks", 1.0)
            return slept_s

        for device in made.devices.values():
            device.restorer.suspended_s = suspended_s
            device.tick_s = (
                60.0  # every request also reads, so that each run has equally many calls
            )
        return made


class LosingTheatre(SleepingTheatre):
    """The driver loses its locks each time."""

    loses = True


@pytest.mark.promise("the actuator dies, also by SIGKILL")
@pytest.mark.parametrize("kind", [NvmlTheatre, ProfiledTheatre, SleepingTheatre, LosingTheatre])
@pytest.mark.parametrize("name", ["two trials over a hold", "a trial that is not renewed"])
def test_killed_between_any_two_nvml_calls_it_puts_back_at_its_next_start(
    name: str, kind: type[NvmlTheatre], nvml: FakeNvml, tmp_path: Path, count: Count
) -> None:
    theatre = kind(tmp_path / "t", nvml)
    whole = (theatre.of(request) for request in SCRIPTS[name][0])
    script = tuple(r if "device" not in r else {**r, "device": A100} for r in whole)
    dry = Points()
    theatre.play(script, dry)
    assert theatre.check_original() == ""
    chosen = [at for at, label in enumerate(dry.labels, 1) if label.startswith("NVML")]
    wrong: list[str] = []
    altered = 0
    for at in chosen:
        theatre.renew_hardware()
        theatre.play(script, Points(at))
        altered += theatre.values != FOUND
        left = theatre.restore()
        problem = theatre.check_original() or str(left or "")
        if problem:
            wrong.append(f"killed before {at} ({dry.labels[at - 1]}): {problem}")
    count(f"NVML: {name}, {kind.__name__}", len(chosen), len(wrong))
    assert not wrong
    assert altered > len(chosen) / 3
