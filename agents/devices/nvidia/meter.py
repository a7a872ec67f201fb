"""The meter of an NVIDIA GPU; it needs no rights. Windows over energy, throttling and other processes.

Source: NVIDIA's NVML API reference (field values 74, 76 and 269 to 271 count nanoseconds). With MIG the
board is measured, all instances together: NVML has no energy of an instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import pynvml

from agents.devices.nvidia.clocks import ClockLock, Look, look
from agents.devices.nvidia.limits import ENFORCED, enforced_w
from agents.devices.nvidia.metering import GpuEnergy
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.profiles import power_profiles
from agents.host.processes.ownership import Attribution, ProcessOwners, WorkloadIdentity
from tuner.core import (
    FOREIGN_LOAD,
    POWER_PROFILES,
    ActuationError,
    Clock,
    Estimate,
    MeasurementError,
    Reading,
)

log = logging.getLogger(__name__)

THROTTLES = MappingProxyType(
    {74: "power", 76: "sync_boost", 269: "thermal", 270: "hw_thermal", 271: "power_brake"}
)
"""NVML's field to the reason; each counts the nanoseconds it was in force."""
STILL_S = 1.0
"""A counter that has not moved for so long stands still."""
MOST_ABOVE = 0.5
"""The share of looks under load that may be above the clock lock before the window is void."""
MOST_UNKNOWN = 0.5
"""The share of a window without an answer whose the processes are before its foreign load is unknown."""
UNLISTED = "NVML lists no process although the GPU is busy; a PID namespace hides them"


class GpuMeter:
    """Opens windows on one GPU; `end` ends what happens beside them."""

    def __init__(
        self,
        gpu: Gpu,
        energy: GpuEnergy,
        lock: ClockLock,
        owners: ProcessOwners,
        clock: Clock,
        end: Callable[[], None],
    ) -> None:
        self.gpu = gpu
        self.close = end
        self.energy = energy
        self.lock = lock
        self.owners = owners
        self.clock = clock
        self._unknown = ""

    def start(self) -> GpuWindow:
        """Open a window now, or in 10 s, after the energy counter has been checked under load.

        Raises:
            MeasurementError: the GPU does not answer.
        """
        with measuring():
            if self.energy.due and look(self.gpu).loaded:
                self.energy.judge()
            return GpuWindow(self)

    @property
    def source(self) -> str:
        """Where its energy comes from now."""
        return self.energy.source

    def attribute_to(self, workload: WorkloadIdentity) -> None:
        """Update the identified processes of this workload."""
        self.owners = replace(self.owners, workload=workload)

    def computing(self, *, loaded: bool) -> Attribution:
        """Return whose the processes are that compute on the GPU now; `loaded` is whether any does.

        Raises:
            ActuationError, DeviceLost: the GPU does not answer.
        """
        processes, refused = self.gpu.query(
            "processes", pynvml.nvmlDeviceGetComputeRunningProcesses
        )
        if processes is None:
            return Attribution(unknown=refused)
        if not processes:
            return Attribution(unknown=UNLISTED if loaded else "")
        return self.owners.attribute({int(process.pid) for process in processes})

    def say_unknown(self, why: str) -> None:
        """Log once that foreign load is unknown, and once that it is available again."""
        if bool(why) != bool(self._unknown):
            event = "foreign_load_unknown" if why else "foreign_load_known"
            log.warning("event=%s device=%s why=%r", event, self.gpu.uuid, why)
        self._unknown = why


class GpuWindow:
    """One window. Every reading also looks at the clock and at who else computes."""

    def __init__(self, meter: GpuMeter) -> None:
        self._meter = meter
        self._throttled = throttle_s(meter.gpu)
        self._profiles = power_profiles(meter.gpu)
        self._by_counter = meter.energy.by_counter
        self._joules = None if meter.energy.cannot else meter.energy.open()
        self._began = self._last_s = meter.clock.monotonic()
        self._enforced_w: list[float] = []
        self._foreign_s = self._unknown_s = 0.0
        self._unknown = ""
        self._looks: list[Look] = []
        self._above: list[str] = []
        self._closed: Reading | None = None

    def read(self) -> Reading:
        """Return the totals so far; energy only once there is any.

        Raises:
            MeasurementError: the GPU is lost, its driver was restarted, or a counter ran backwards.
        """
        if self._closed is not None:
            return self._closed
        with measuring():
            return self._shown()

    def stop(self) -> Reading:
        """Close the window and return what it showed.

        Raises:
            MeasurementError: as `read`; or the energy counter stood still, or the clock did not follow
                its lock.
            SettingContested: it did not, for the second time; its lock was left to another program.
        """
        if self._closed is None:
            try:
                with measuring():
                    shown = self._shown()
                    self._check_counter(shown)
                    self._check_clock()
            finally:
                if self._joules is not None:
                    self._joules.close()
            lowest = min(self._enforced_w, default=None)
            limit = {} if lowest is None else {ENFORCED.name: Estimate.of_mean(lowest, 0.0)}
            self._closed = replace(shown, estimates=limit)
        return self._closed

    def _shown(self) -> Reading:
        joules = 0.0 if self._joules is None else self._joules.read()
        totals = {f"throttled_{why}_s": s for why, s in self._since().items()}
        totals["foreign_s"] = self._attributed(self._see())
        if joules > 0.0:
            totals["energy_j"] = joules
        watts = enforced_w(self._meter.gpu)
        self._enforced_w += [] if watts is None else [watts]
        return Reading(totals, notes=self._notes())

    def _attributed(self, observed: Look) -> float:
        """Return for how many seconds foreign processes have computed, up to this look."""
        attribution = self._meter.computing(loaded=observed.loaded)
        now = self._meter.clock.monotonic()
        passed, self._last_s = now - self._last_s, now
        self._foreign_s += passed if attribution.foreign else 0.0
        self._unknown_s += passed if attribution.unknown else 0.0
        self._unknown = attribution.unknown or self._unknown
        return self._foreign_s

    def _notes(self) -> dict[str, str]:
        """Return in words what the window cannot tell, and the power profiles in force."""
        unknown = self._unknown_s > MOST_UNKNOWN * (self._last_s - self._began)
        self._meter.say_unknown(self._unknown if unknown else "")
        notes = {FOREIGN_LOAD: f"unknown: {self._unknown}"} if unknown else {}
        now = power_profiles(self._meter.gpu)
        if now is not None:
            changed = self._profiles is not None and now != self._profiles
            notes[POWER_PROFILES] = f"{self._profiles}, then {now}" if changed else str(now)
        return notes

    def _since(self) -> dict[str, float]:
        now = throttle_s(self._meter.gpu)
        passed = {k: now[k] - before for k, before in self._throttled.items() if k in now}
        if any(seconds < 0.0 for seconds in passed.values()):
            raise MeasurementError(
                f"{self._meter.gpu.uuid}: a throttle counter jumped back",
                hint="the driver was restarted; measure again",
            )
        return passed

    def _see(self) -> Look:
        observed = look(self._meter.gpu)
        self._looks.append(observed)
        wrong = self._meter.lock.above(observed)
        self._above += [wrong] if wrong else []
        return observed

    def _check_counter(self, shown: Reading) -> None:
        """Check the energy counter once load has come; one that counts wrong spoils the window."""
        energy, uuid = self._meter.energy, self._meter.gpu.uuid
        seconds = self._meter.clock.monotonic() - self._began
        if self._joules is not None and "energy_j" not in shown.totals and seconds > STILL_S:
            energy.doubt()
            raise MeasurementError(
                f"{uuid}: the energy counter did not change for {seconds:.3g} s",
                hint="measure again; it is checked again under load",
            )
        if energy.due and look(self._meter.gpu).loaded:
            energy.judge()
        if self._by_counter and not energy.by_counter:
            raise MeasurementError(
                f"{uuid}: the energy counter is wrong: {energy.source}",
                hint="measure again; its power is now integrated",
            )

    def _check_clock(self) -> None:
        """Judge what was seen of the clock. Raises MeasurementError."""
        if len(self._above) > MOST_ABOVE * sum(observed.loaded for observed in self._looks):
            raise self._meter.lock.contradicted(self._above[-1])
        if self._meter.lock.mhz is None:
            self._meter.lock.seen_free(self._looks)


def throttle_s(gpu: Gpu) -> dict[str, float]:
    """Return for how long each reason has throttled the GPU, without those it does not count.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    fields, _ = gpu.query("throttle counters", pynvml.nvmlDeviceGetFieldValues, list(THROTTLES))
    return {
        THROTTLES[f.fieldId]: f.value.ullVal / 1e9
        for f in fields or ()
        if f.nvmlReturn == pynvml.NVML_SUCCESS
    }


@contextmanager
def measuring() -> Iterator[None]:
    """Turn a GPU that does not answer into a MeasurementError."""
    try:
        yield
    except ActuationError as error:
        raise MeasurementError(error.message, hint=error.hint) from error
