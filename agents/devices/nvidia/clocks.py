"""Checks that a clock lock is in force: NVML has no getter for it, so the clock is read under load.

A lock is a ceiling. A clock below it contradicts nothing: boards list clocks that they never reach (RTX
A6000), lower them at part load, and do so without any event reason (LACT, issue 1128). Only a clock above
it does: the lock was lost (a resume, `nvidia-smi -rgc`), or another program has set a different one.

Source: NVIDIA's NVML API reference for clocks and event reasons. Users report that the success of a set
call only means "requested" (NVIDIA/open-gpu-kernel-modules, issue 1314). The times and the tolerances are
ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import pynvml

from agents.actuator.driver import contested
from agents.actuator_client.client import RemoteKnobs
from agents.actuator_client.offered import without
from agents.devices.nvidia.knobs import CLOCK, LIMIT, PROFILE, TOLERANCE_MHZ
from agents.devices.nvidia.limits import cap_w
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.remembered import Memory
from tuner.core import (
    ActuationError,
    Clock,
    KnobRefused,
    MeasurementError,
    Setting,
    SettingContested,
    Space,
    TuningError,
)

log = logging.getLogger(__name__)

IDLE = 0x1
SLOWED = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
"""Power cap, hardware slowdown, sync boost, thermal slowdowns, power brake: each explains a lower clock."""
LONGEST_SETTLE_S = 5.0
UNSEEN_SETTLE_S = 2.0
"""Seconds for a change to take effect on a GPU where none has been observed yet."""
LOOK_S = 0.02
FULL_LOAD = 90
"""From this utilisation in percent on, the clock is not lowered for lack of work."""
LEAST_LOOKS = 5
"""Samples that a window needs to show the highest clock."""
LONGEST_CLOCK = 1_000_000
"""Above any clock, in MHz."""


@dataclass(frozen=True, slots=True)
class Look:
    """One sample of a GPU.

    `sm_mhz` is its SM clock, 0 if unknown; `reasons` are NVML's event reasons for it. `loaded` is whether
    the GPU works, `full` whether it is at full load.
    """

    sm_mhz: int
    reasons: int
    loaded: bool
    full: bool = True

    @property
    def slowed(self) -> bool:
        """Whether something other than a lock keeps the clock down."""
        return bool(self.reasons & SLOWED)


def look(gpu: Gpu) -> Look:
    """Sample a GPU now. Raises ActuationError, DeviceLost."""
    clock, _ = gpu.query(
        "SM clock", pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT
    )
    reasons, _ = gpu.query("event reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons)
    if reasons is None:
        reasons, _ = gpu.query("throttle reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    used, _ = gpu.query("utilisation", pynvml.nvmlDeviceGetUtilizationRates)
    idle = bool((reasons or 0) & IDLE) or (used is not None and used.gpu == 0)
    full = used is None or used.gpu >= FULL_LOAD
    return Look(int(clock or 0), int(reasons or 0), not idle, full)


class ClockLock:
    """The ceiling of the GPU's clock that we have requested, in MHz; None if the driver chooses the clock.

    `profile` is the power profile that we have requested, empty without one.
    `contradicted` returns the error of a window with clocks above it, from a description of the last one.
    `seen_free` gets the samples of each window without a lock.
    """

    def __init__(self) -> None:
        self.mhz: int | None = None
        self.profile = ""
        self.contradicted: Callable[[str], MeasurementError] = MeasurementError
        self.seen_free: Callable[[list[Look]], None] = lambda looks: None

    def above(self, observed: Look) -> str:
        """Return how a sample under load contradicts the lock, for messages; empty if it does not."""
        if self.mhz is None or not observed.loaded or observed.sm_mhz <= self.mhz + TOLERANCE_MHZ:
            return ""
        return f"the SM clock runs at {observed.sm_mhz} MHz under load, above its lock of {self.mhz} MHz"


def reached(looks: list[Look]) -> int | None:
    """Return the highest clock in MHz that a board reached by itself, None if the samples do not show it.

    They show it if all were under full load and nothing slowed it: power, heat or lack of work.
    """
    if len(looks) < LEAST_LOOKS or any(s.slowed or not (s.loaded and s.full) for s in looks):
        return None
    return max(s.sm_mhz for s in looks)


class FollowedKnobs:
    """Knobs of a GPU; a change counts as applied once the clock is seen to follow.

    Without load the clock does not show it. The change is then given the longest time that one has taken
    so far, and the meter checks the clock in every window.
    """

    def __init__(
        self,
        knobs: RemoteKnobs,
        space: Space,
        gpu: Gpu,
        lock: ClockLock,
        memory: Memory,
        clock: Clock,
    ) -> None:
        self._knobs = knobs
        self.caps, self.read = knobs.caps, knobs.read
        self.conflict, self.close = knobs.conflict, knobs.close
        self._space = space
        self._default = space.default
        self._gpu = gpu
        self._lock = lock
        self._memory = memory
        self._clock = clock
        self._above_at = -inf
        self._cap_w: float | None = None
        lock.contradicted, lock.seen_free = self._contradicted, self._seen_free

    def apply(self, setting: Setting) -> None:
        """Set knobs and wait until the clock has followed.

        Raises:
            UnknownKnob, OutOfRange, DeviceBusy: nothing was changed.
            KnobRefused: the GPU refuses a knob, which is no longer offered.
            ActuationError: the clock stays above its lock.
        """
        before = self._lock.mhz
        try:
            self._knobs.apply(setting)
        except KnobRefused as error:
            if error.knob:
                self._memory.saw_refusal(error.knob, error.message)
            raise
        self._expect(setting)
        if CLOCK in setting and self._lock.mhz != before:
            self._follow()
        if LIMIT in setting:
            self._cap_w = cap_w(self._gpu) or self._cap_w

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Confirm a setting to the actuator. Raises ActuationError."""
        self._knobs.hold(setting, study, revision, valid_for_s)
        self._expect(setting)

    def rest(self) -> Setting | None:
        """Bring a member to its original setting within its caps, unless another setting is in force.

        Returns the setting, None if another is in force. Raises ActuationError.
        """
        setting = self._knobs.rest()
        self._expect(setting or {})
        return setting

    def release(self) -> None:
        """Restore the device to its original setting. Raises ActuationError."""
        self._lock.mhz, self._lock.profile = None, ""
        self._knobs.release()

    @property
    def job(self) -> str:
        """The batch job that the device is leased to, empty if none is."""
        return self._knobs.job

    def left(self) -> tuple[Space, Mapping[str, str]]:
        """Return the space still offered, and the reasons for the knobs that the GPU refused to set.

        It has no clock above the highest that the board reaches and no power limit above the enforced one,
        except the defaults, which were in force before.
        """
        findings, refused = self._memory.findings, self._memory.findings.refused
        most = findings.reach_mhz or LONGEST_CLOCK
        knobs = []
        for knob in without(self._space, refused).knobs:
            values = knob.values
            if knob.name == CLOCK:
                values = tuple(v for v in values if v == knob.default or float(v) <= most)
            elif knob.name == LIMIT and self._cap_w is not None:
                values = tuple(v for v in values if v == knob.default or float(v) <= self._cap_w)
            knobs.append(replace(knob, values=values))
        return Space(tuple(knobs)), refused

    def _contradicted(self, why: str) -> MeasurementError:
        """Return the error of a window above the lock, which is re-applied once, then left alone."""
        if self.job:  # a job's setting takes precedence over ours
            return MeasurementError(f"{self._gpu.uuid} is leased to job {self.job}")
        now, before = self._clock.monotonic(), self._above_at
        self._above_at = now
        if not contested(before, now):
            log.warning("event=lock_lost device=%s why=%r next='re-applied'", self._gpu.uuid, why)
            with suppress(TuningError):
                self._knobs.again()
            return MeasurementError(
                f"{self._gpu.uuid}: {why}",
                hint="the lock was lost and re-applied; measure again",
            )
        why = f"{why}, twice in {now - before:.0f} s: another program sets {CLOCK}"
        with suppress(TuningError):
            self._knobs.leave(CLOCK, why)
        self._lock.mhz = None
        return SettingContested(
            f"{self._gpu.uuid}: {why}",
            hint=f"stop it, then run `jouletune actuator restore {self._gpu.uuid}`",
        )

    def _seen_free(self, looks: list[Look]) -> None:
        """Store the highest clock of a window without a lock."""
        mhz = reached(looks)
        if mhz is not None:
            self._memory.saw_reach(mhz)

    def _expect(self, setting: Setting) -> None:
        """Update the lock and the profile that windows are checked against; the defaults have none."""
        if PROFILE in setting:
            ours = setting[PROFILE] != self._default.get(PROFILE)
            self._lock.profile = str(setting[PROFILE]) if ours else ""
        if CLOCK in setting:
            value = setting[CLOCK]
            self._lock.mhz = None if value == self._default.get(CLOCK) else int(value)

    def _follow(self) -> None:
        """Wait until the clock has settled at or below its lock. Raises ActuationError.

        It settles at the lock, at the board's highest clock, where something slows it, or wherever it has
        not moved for a while.
        """
        began = self._clock.monotonic()
        findings, before, moved_s = self._memory.findings, -LONGEST_CLOCK, 0.0
        while True:
            observed = look(self._gpu)
            waited = self._clock.monotonic() - began
            if not observed.loaded or self._lock.mhz is None:
                usual = findings.settle_s
                self._clock.sleep((UNSEEN_SETTLE_S if usual is None else usual) - waited)
                return
            if abs(observed.sm_mhz - before) > TOLERANCE_MHZ:
                before, moved_s = observed.sm_mhz, waited
            wrong = self._lock.above(observed)
            goal = min(self._lock.mhz, findings.reach_mhz or LONGEST_CLOCK)
            if not wrong and (observed.slowed or observed.sm_mhz >= goal - TOLERANCE_MHZ):
                self._memory.saw_settling(waited)
                return
            if not wrong and waited - moved_s >= max(UNSEEN_SETTLE_S, findings.settle_s or 0.0):
                return
            if waited > LONGEST_SETTLE_S:
                raise ActuationError(
                    f"{self._gpu.uuid}: {wrong or 'the SM clock does not settle'}, "
                    f"{LONGEST_SETTLE_S:g} s after it was set",
                    hint="another program also sets clocks; run `jouletune doctor` to find it",
                )
            self._clock.sleep(LOOK_S)
