"""The meter of an NVIDIA GPU: windows over energy, throttling and other processes. It needs no rights.

Source: NVIDIA's NVML API reference (field values 74, 76 and 269 to 271 count nanoseconds). With MIG the
board is measured with all instances together: NVML has no energy of an instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType

import pynvml

from agents.devices.nvidia.clocks import ClockLock, Look, look
from agents.devices.nvidia.energy import CHECK_S, LONGEST_STEP_S, GpuEnergy
from agents.devices.nvidia.knobs import PROFILE, profiles_in
from agents.devices.nvidia.limits import ENFORCED, enforced_w, named, power_profiles
from agents.devices.nvidia.nvml import Gpu
from agents.host.processes.ownership import Attribution, ProcessOwners, WorkloadIdentity
from agents.load.window import OpenWindow
from tuner.core import (
    FOREIGN_LOAD,
    POWER_PROFILES,
    ActuationError,
    Clock,
    CounterAndPower,
    DeviceUse,
    Estimate,
    Fact,
    MeasurementError,
    Reading,
    SettingContested,
    demand,
    reraised,
)

log = logging.getLogger(__name__)

THROTTLES = MappingProxyType(
    {74: "power", 76: "sync_boost", 269: "thermal", 270: "hw_thermal", 271: "power_brake"}
)
"""NVML's field to the throttle reason; each counts the nanoseconds for which it was in force."""
MOST_ABOVE = 0.5
"""Share of samples under load with a clock above the lock, beyond which the window is discarded."""
MOST_UNKNOWN = 0.5
"""Share of a window with unidentified processes, beyond which its foreign load is unknown."""
UNLISTED = "NVML lists no process although the GPU is busy; a PID namespace hides them"


class GpuMeter:
    """Open windows on one GPU; `end` stops its periodic check for detached GPUs.

    `index` is its NVML index; `others` are the host's other GPUs by theirs.
    """

    def __init__(
        self,
        gpu: Gpu,
        energy: GpuEnergy,
        lock: ClockLock,
        owners: ProcessOwners,
        clock: Clock,
        end: Callable[[], None],
        index: int = 0,
        others: Mapping[int, Gpu] = MappingProxyType({}),
    ) -> None:
        self.gpu = gpu
        self._index, self._others = index, others
        self.close = end
        self.energy = energy
        self.lock = lock
        self.owners = owners
        self.clock = clock
        self._unknown = ""

    def start(self) -> GpuWindow:
        """Open a window, after 10 s if the energy counter must first be checked under load.

        Raises:
            MeasurementError: the GPU does not answer.
        """
        with measuring():
            if self.energy.due and look(self.gpu).loaded:
                self.energy.judge()
            return GpuWindow(self)

    @property
    def source(self) -> str:
        """The present source of its energy, for messages."""
        return self.energy.source

    def attribute_to(self, workload: WorkloadIdentity) -> None:
        """Replace the workload to which processes are attributed."""
        self.owners = replace(self.owners, workload=workload)

    def computing(self, *, loaded: bool) -> Attribution:
        """Return the owners of the processes that now compute on the GPU; `loaded`: whether it is busy.

        Raises:
            ActuationError, DeviceLost: the GPU does not answer.
        """
        pids, refused = computing(self.gpu)
        if refused or not pids:
            return Attribution(unknown=refused or (UNLISTED if loaded else ""))
        return self.owners.attribute(pids)

    def use(self, *, ours: bool, looks: Sequence[Look], why: str) -> DeviceUse:
        """Return the devices on which the workload's processes compute, for the samples of a window.

        Raises:
            ActuationError, DeviceLost: the GPU does not answer.
        """
        elsewhere: dict[str, str] = {}
        for index, gpu in self._others.items():
            with suppress(ActuationError):  # the other GPU is lost
                pids, _ = computing(gpu)
                if pids and self.owners.attribute(pids).ours:
                    elsewhere[f"nvidia:{index}"] = f"GPU {index} ({gpu.uuid})"
        busy = any(observed.loaded for observed in looks)
        device, name = f"nvidia:{self._index}", f"GPU {self._index} ({self.gpu.uuid})"
        return DeviceUse(
            device=device,
            name=name,
            ours=ours,
            busy=busy,
            looks=len(looks),
            elsewhere=elsewhere,
            why=why,
        )

    def say_unknown(self, why: str) -> None:
        """Log once when foreign load becomes unknown, and once when it is known again."""
        if bool(why) != bool(self._unknown):
            event = "foreign_load_unknown" if why else "foreign_load_known"
            log.warning("event=%s device=%s why=%r", event, self.gpu.uuid, why)
        self._unknown = why


def computing(gpu: Gpu) -> tuple[set[int], str]:
    """Return the processes that compute on a GPU, MPS clients included, and the reason if they are unknown.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    listed, refused = gpu.query("processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
    clients, _ = gpu.query("MPS clients", pynvml.nvmlDeviceGetMPSComputeRunningProcesses)
    return {int(one.pid) for one in (*(listed or ()), *(clients or ()))}, refused


class GpuWindow(OpenWindow):
    """One window. Every reading also samples the clock and the computing processes."""

    def __init__(self, meter: GpuMeter) -> None:
        self._meter = meter
        self._throttled = throttle_s(meter.gpu)
        self._profiles = power_profiles(meter.gpu)
        self._by_counter = meter.energy.by_counter
        self._joules = None if meter.energy.cannot else meter.energy.open()
        self._power = meter.energy.witness()
        self._power_j: float | None = None
        self._why_no_power = "the GPU reports no power beside its counter"
        self._ours = False
        self._counted_j = self._still_s = self._rest_s = 0.0
        self._began = self._last_s = self._moved_s = meter.clock.monotonic()
        self._enforced_w: list[float] = []
        self._foreign_s = self._unknown_s = 0.0
        self._unknown = ""
        self._looks: list[Look] = []
        self._above: list[str] = []

    def _shown(self) -> Reading:
        """Return the totals so far; energy only once some has been counted.

        Raises:
            MeasurementError: the GPU is lost, its driver was restarted, or a counter ran backwards.
        """
        with measuring():
            return self._totals()

    def _ended(self) -> Reading:
        """Return the last totals, estimates and facts.

        Raises:
            MeasurementError: as `read`; or the energy counter stood still, or the clock did not follow
                its lock.
            SettingContested: it did not follow for the second time; its lock was left to another program.
                Or a profile of another program excludes ours.
        """
        try:
            with measuring():
                shown = self._totals()
                self._check_counter(shown)
                self._check_clock()
                self._check_profile()
        finally:
            for opened in (self._joules, self._power):
                if opened is not None:
                    opened.close()
        lowest = min(self._enforced_w, default=None)
        limit = {} if lowest is None else {ENFORCED.name: Estimate.of_mean(lowest, 0.0)}
        with measuring():
            use = self._meter.use(ours=self._ours, looks=self._looks, why=self._unknown)
        return replace(shown, estimates=limit, facts=(*self._energy_facts(shown), use))

    def _totals(self) -> Reading:
        """Take a reading of all sources now."""
        self._look_at_power()
        joules = 0.0 if self._joules is None else self._joules.read()
        totals = {f"throttled_{why}_s": s for why, s in self._since().items()}
        observed = self._see()
        totals["foreign_s"] = self._attributed(observed)
        self._note_moving(joules, observed)
        if joules > 0.0:
            totals["energy_j"] = joules
        watts = enforced_w(self._meter.gpu)
        self._enforced_w += [] if watts is None else [watts]
        return Reading(totals, notes=self._notes())

    def _attributed(self, observed: Look) -> float:
        """Return the seconds for which foreign processes have computed, up to this sample."""
        attribution = self._meter.computing(loaded=observed.loaded)
        now = self._meter.clock.monotonic()
        passed, self._last_s = now - self._last_s, now
        self._rest_s += 0.0 if all(one.loaded for one in self._looks[-2:]) else passed
        self._ours |= bool(attribution.ours)
        self._foreign_s += passed if attribution.foreign else 0.0
        self._unknown_s += passed if attribution.unknown else 0.0
        self._unknown = attribution.unknown or self._unknown
        return self._foreign_s

    def _notes(self) -> dict[str, str]:
        """Return notes on unknown foreign load, and on the power profiles of other programs."""
        unknown = self._unknown_s > MOST_UNKNOWN * (self._last_s - self._began)
        self._meter.say_unknown(self._unknown if unknown else "")
        notes = {FOREIGN_LOAD: f"unknown: {self._unknown}"} if unknown else {}
        now = power_profiles(self._meter.gpu)
        if now is not None:
            ours = self._meter.lock.profile
            shown = (p.by_others(ours) for p in (self._profiles, now) if p is not None)
            notes[POWER_PROFILES] = ", then ".join(dict.fromkeys(shown))
        return notes

    def _since(self) -> dict[str, float]:
        """Return the seconds of throttling since the window began, by reason. Raises MeasurementError."""
        now = throttle_s(self._meter.gpu)
        passed = {k: now[k] - before for k, before in self._throttled.items() if k in now}
        if any(seconds < 0.0 for seconds in passed.values()):
            raise MeasurementError(
                f"{self._meter.gpu.uuid}: a throttle counter jumped back",
                hint="the driver was restarted; measure again",
            )
        return passed

    def _see(self) -> Look:
        """Sample the GPU and record whether its clock is above the lock."""
        observed = look(self._meter.gpu)
        self._looks.append(observed)
        wrong = self._meter.lock.above(observed)
        self._above += [wrong] if wrong else []
        return observed

    def _note_moving(self, joules: float, observed: Look) -> None:
        """Record the longest time that the counter stood still under load, or before it first moved."""
        now = self._last_s
        if joules > self._counted_j or not (observed.loaded or not joules):
            self._moved_s = now
        self._counted_j, self._still_s = joules, max(self._still_s, now - self._moved_s)

    def _look_at_power(self) -> None:
        """Integrate the power up to now. Raises ActuationError: the driver does not answer."""
        if self._power is not None:
            try:
                self._power_j = self._power.read()
            except MeasurementError as error:  # not sampled often enough, or absurd
                self._power_j, self._why_no_power = None, error.message

    def _energy_facts(self, shown: Reading) -> tuple[Fact, ...]:
        """Return the facts on the energy counter and the power beside it."""
        if self._joules is None or not self._by_counter:
            return self._joules.facts() if self._joules else ()
        power, loaded = self._power, any(one.loaded for one in self._looks)
        share = self._meter.energy.rest_share if loaded else 1.0
        return (
            CounterAndPower(
                meter=self._meter.gpu.uuid,
                counted_j=shown.totals.get("energy_j", 0.0),
                power_j=self._power_j,
                most_w=power.greatest_w if power else 0.0,
                spread_w=power.greatest_w - power.least_w if power else 0.0,
                gap_s=power.gap_s if power else 0.0,
                rest_j=self._rest_s * power.least_w * share if power else 0.0,
                still_s=self._still_s,
                why=self._why_no_power,
            ),
        )

    def _check_counter(self, shown: Reading) -> None:
        """Check the energy counter once there is load. Raises MeasurementError if it counts wrong."""
        energy, uuid = self._meter.energy, self._meter.gpu.uuid
        try:
            demand(*self._energy_facts(shown))
        except MeasurementError:
            energy.doubt()
            raise
        if energy.due and look(self._meter.gpu).loaded:
            energy.judge()
        at_rest = self._rest_s >= CHECK_S and not any(one.loaded for one in self._looks)
        if at_rest and self._power and self._power_j:
            counted_j = shown.totals.get("energy_j", 0.0)
            energy.rested(counted_j, self._power_j, LONGEST_STEP_S * self._power.greatest_w)
        if self._by_counter and not energy.by_counter:
            raise MeasurementError(
                f"{uuid}: the energy counter is wrong: {energy.source}",
                hint="measure again; its power is now integrated",
            )

    def _check_clock(self) -> None:
        """Check the window's clocks against the lock. Raises MeasurementError."""
        if len(self._above) > MOST_ABOVE * sum(observed.loaded for observed in self._looks):
            raise self._meter.lock.contradicted(self._above[-1])
        if self._meter.lock.mhz is None:
            self._meter.lock.seen_free(self._looks)

    def _check_profile(self) -> None:
        """Raise SettingContested if the power profile that we have requested is not enforced."""
        ours, now = self._meter.lock.profile, power_profiles(self._meter.gpu)
        if ours and now and ours not in profiles_in(now.enforced):
            raise SettingContested(
                f"{self._meter.gpu.uuid}: {PROFILE} is {ours}, and the driver enforces "
                f"{named(now.enforced)}",
                hint="another program's profile excludes it: nvidia-smi power-profiles",
            )


def throttle_s(gpu: Gpu) -> dict[str, float]:
    """Return the seconds for which each reason that the GPU counts has throttled it.

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
    """Raise a MeasurementError for a GPU that does not answer."""
    with reraised(MeasurementError, ActuationError):
        yield
