"""Whether a clock lock is in force: nobody can ask the driver, so the clock is looked at under load.

Source: NVIDIA's NVML API reference for clocks and event reasons. That a set call's success only means
"requested" is what users report (NVIDIA/open-gpu-kernel-modules, issue 1314). The times and the
tolerance are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pynvml

from agents.devices.nvidia.knobs import CLOCK
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.remembered import Memory
from agents.target.side import Closing, HoldGuard
from tuner.core import ActuationError, Actuator, Clock, Setting

IDLE = 0x1
SLOWED = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
"""Power cap, hardware slowdown, sync boost, thermal slowdowns, power brake: each explains a lower clock."""
TOLERANCE_MHZ = 30
"""Two steps of today's boards: the clock that is reported wanders by one."""
LONGEST_SETTLE_S = 5.0
UNSEEN_SETTLE_S = 2.0
"""What a change is given while nobody has yet seen one take effect on this GPU."""
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a GPU: its SM clock (0: not told), why it is not higher, and whether it computes."""

    sm_mhz: int
    reasons: int
    loaded: bool

    @property
    def slowed(self) -> bool:
        """Whether something else than a lock keeps the clock down."""
        return bool(self.reasons & SLOWED)


def look(gpu: Gpu) -> Look:
    """Look at a GPU now. Raises ActuationError, DeviceLost."""
    clock, _ = gpu.told(
        "SM clock", pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT
    )
    reasons, _ = gpu.told("event reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons)
    if reasons is None:
        reasons, _ = gpu.told("throttle reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    used, _ = gpu.told("utilisation", pynvml.nvmlDeviceGetUtilizationRates)
    idle = bool((reasons or 0) & IDLE) or (used is not None and used.gpu == 0)
    return Look(int(clock or 0), int(reasons or 0), not idle)


class ClockLock:
    """The GPU clock that was asked for; None where it is left to the driver."""

    def __init__(self) -> None:
        self.mhz: int | None = None

    def astray(self, seen: Look) -> str:
        """Return in words how a look under load contradicts the lock; empty where it does not."""
        if self.mhz is None or not seen.loaded:
            return ""
        above = seen.sm_mhz > self.mhz + TOLERANCE_MHZ
        below = 0 < seen.sm_mhz < self.mhz - TOLERANCE_MHZ and not seen.slowed
        if not above and not below:
            return ""
        return f"the SM clock runs at {seen.sm_mhz} MHz under load, not at {self.mhz}"


class Knobs(Actuator, HoldGuard, Closing, Protocol):
    """A device behind the actuator."""


class FollowedKnobs:
    """Knobs whose clock is seen to follow before a change counts as applied.

    Without load nothing can be seen: the change is given the longest time that one took so far, and
    the meter looks again in every window.
    """

    def __init__(
        self,
        knobs: Knobs,
        default: Setting,
        gpu: Gpu,
        lock: ClockLock,
        memory: Memory,
        clock: Clock,
    ) -> None:
        self._knobs = knobs
        self._default = default
        self._gpu = gpu
        self._lock = lock
        self._memory = memory
        self._clock = clock

    def read(self) -> Setting:
        """Return what is in force, as far as the actuator knows. Raises ActuationError."""
        return self._knobs.read()

    def apply(self, setting: Setting) -> None:
        """Set knobs and wait until the clock has followed.

        Raises:
            UnknownKnob, OutOfRange, DeviceBusy: nothing was changed.
            ActuationError: a knob was refused, or the clock does not follow.
        """
        before = self._lock.mhz
        self._knobs.apply(setting)
        self._expect(setting)
        if CLOCK in setting and self._lock.mhz != before:
            self._follow()

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Confirm a setting to the actuator. Raises ActuationError."""
        self._knobs.hold(setting, study, revision, valid_for_s)
        self._expect(setting)

    def release(self) -> None:
        """Give the device back to its original. Raises ActuationError."""
        self._lock.mhz = None
        self._knobs.release()

    def conflict(self) -> str:
        """Return what the actuator has against what is in force; empty where nothing."""
        return self._knobs.conflict()

    def close(self) -> None:
        """End the connection to the actuator."""
        self._knobs.close()

    def _expect(self, setting: Setting) -> None:
        if CLOCK in setting:
            value = setting[CLOCK]
            self._lock.mhz = None if value == self._default.get(CLOCK) else int(value)

    def _follow(self) -> None:
        """Return once the clock has followed under load, or cannot be seen to. Raises ActuationError."""
        began = self._clock.monotonic()
        while True:
            seen = look(self._gpu)
            waited = self._clock.monotonic() - began
            if not seen.loaded or self._lock.mhz is None:
                usual = self._memory.findings.settle_s
                self._clock.sleep((UNSEEN_SETTLE_S if usual is None else usual) - waited)
                return
            wrong = self._lock.astray(seen)
            if not wrong:
                self._memory.saw_settling(waited)
                return
            if waited > LONGEST_SETTLE_S:
                raise ActuationError(
                    f"{self._gpu.uuid}: {wrong}, {LONGEST_SETTLE_S:g} s after it was set",
                    hint="something else sets clocks too; `jouletune doctor` names the usual ones",
                )
            self._clock.sleep(LOOK_S)
