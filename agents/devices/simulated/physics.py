"""Physics of a processor at given clocks: batch time, power, and temperature.

The power model is that of Kernel Tuner ("Going green", PMBS 2022): P = idle + a·f·V(f)², V flat up
to a threshold and then linear. The time model is a roofline: compute over the GPU clock, memory
over the memory clock, host work over the CPU clock. Our own choices: the smooth maximum between
compute and memory, the share of a unit's power that it draws while waiting, and the thermal node.
Left out: thermal throttling, voltage offsets, several processes on one device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMOOTHING = 4.0
"""Exponent of the smooth maximum: 4 blurs the roofline's ridge by at most 19 %."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Voltage over clock, relative to the flat part: 1 up to `threshold_mhz`, then rising."""

    threshold_mhz: float
    per_mhz: float

    def squared(self, mhz: float) -> float:
        """Return V², relative."""
        rise = mhz - self.threshold_mhz
        return 1.0 if rise <= 0.0 else (1.0 + self.per_mhz * rise) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One clock domain. `watts_per_mhz` at V = 1 and full use; `waiting` is the share drawn idle."""

    max_mhz: float
    watts_per_mhz: float
    waiting: float
    curve: Curve

    def power_w(self, mhz: float, busy: float) -> float:
        """Return the dynamic power in W at a clock; `busy` is the share of the time that the unit works."""
        activity = self.waiting + (1.0 - self.waiting) * busy
        return self.watts_per_mhz * mhz * self.curve.squared(mhz) * activity


@dataclass(frozen=True, slots=True, kw_only=True)
class Thermal:
    """Leakage and one RC node: `leak_w` at the ambient temperature, rising `leak_per_k` of itself per K.

    `k_per_w` is the resistance to the ambient, `j_per_k` the capacity.
    """

    ambient_c: float
    leak_w: float
    leak_per_k: float
    k_per_w: float
    j_per_k: float

    def leakage_w(self, celsius: float) -> float:
        """Return the leakage power at a temperature."""
        return self.leak_w * (1.0 + self.leak_per_k * (celsius - self.ambient_c))

    def settled_c(self, watts: float, *, leaking: bool) -> float:
        """Return the steady-state temperature at a constant power, with leakage added on top or not."""
        if not leaking:
            return self.ambient_c + self.k_per_w * watts
        gain = 1.0 - self.k_per_w * self.leak_w * self.leak_per_k
        return self.ambient_c + self.k_per_w * (watts + self.leak_w) / gain

    def warm(
        self, celsius: float, watts: float, seconds: float, *, leaking: bool
    ) -> tuple[float, float]:
        """Return temperature and energy (J) after `seconds` of constant power, solved exactly."""
        slope = self.leak_w * self.leak_per_k if leaking else 0.0
        tau = self.j_per_k / (1.0 / self.k_per_w - slope)
        end = self.settled_c(watts, leaking=leaking)
        decay = -math.expm1(-seconds / tau)
        settled_w = watts + (self.leakage_w(end) if leaking else 0.0)
        energy = settled_w * seconds + slope * (celsius - end) * tau * decay
        return celsius + (end - celsius) * decay, energy


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The demand of a workload, in ms at full clocks: per batch (`_fixed`) and per item in it.

    `intensity` scales the GPU's dynamic power: the part of the chip that the workload's kernels
    switch.
    """

    compute_fixed_ms: float
    compute_ms: float
    memory_fixed_ms: float
    memory_ms: float
    host_fixed_ms: float
    host_ms: float
    intensity: float = 1.0


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The state of a device: its clocks, its power limit, and the batch size."""

    gpu_mhz: float
    mem_mhz: float
    cpu_mhz: float
    limit_w: float
    batch: int


@dataclass(frozen=True, slots=True)
class Pace:
    """The result at a point: seconds per batch, dynamic plus idle power in W, and the actual GPU clock."""

    step_s: float
    power_w: float
    gpu_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A device: its clock domains, idle power, thermal node, and hidden host work.

    `overlap` is the share of the host work done while the GPU computes the previous batch.
    """

    gpu: Unit
    mem: Unit
    cpu: Unit
    idle_w: float
    thermal: Thermal
    overlap: float
    min_gpu_mhz: float

    def pace(self, work: Work, point: OperatingPoint, gpu_mhz: float) -> Pace:
        """Return time and power at a GPU clock, ignoring the power limit."""
        batch = point.batch
        compute = (work.compute_fixed_ms + work.compute_ms * batch) * self.gpu.max_mhz / gpu_mhz
        memory = (work.memory_fixed_ms + work.memory_ms * batch) * self.mem.max_mhz / point.mem_mhz
        host = (work.host_fixed_ms + work.host_ms * batch) * self.cpu.max_mhz / point.cpu_mhz
        hidden = host * self.overlap
        step = (compute**SMOOTHING + memory**SMOOTHING + hidden**SMOOTHING) ** (1.0 / SMOOTHING)
        step += host - hidden
        power = (
            self.idle_w
            + work.intensity * self.gpu.power_w(gpu_mhz, compute / step)
            + self.mem.power_w(point.mem_mhz, memory / step)
            + self.cpu.power_w(point.cpu_mhz, host / step)
        )
        return Pace(step / 1000.0, power, gpu_mhz)

    def capped(self, work: Work, point: OperatingPoint, celsius: float) -> Pace:
        """Return time and power at a temperature, with the GPU clock lowered to keep the power limit.

        If even the lowest clock exceeds the limit, that clock is used and the limit is not kept.
        """
        budget = point.limit_w - self.thermal.leakage_w(celsius)
        uncapped = self.pace(work, point, point.gpu_mhz)
        if uncapped.power_w <= budget:
            return uncapped
        low, high = self.min_gpu_mhz, point.gpu_mhz
        for _ in range(24):
            middle = (low + high) / 2.0
            if self.pace(work, point, middle).power_w <= budget:
                low = middle
            else:
                high = middle
        return self.pace(work, point, low)

    def settled(self, work: Work, point: OperatingPoint) -> tuple[Pace, float]:
        """Return pace and total power (W, leakage included) once the temperature has settled."""
        thermal = self.thermal
        uncapped = self.pace(work, point, point.gpu_mhz)
        hot = thermal.settled_c(uncapped.power_w, leaking=True)
        total = uncapped.power_w + thermal.leakage_w(hot)
        if total <= point.limit_w:
            return uncapped, total
        held = self.capped(work, point, thermal.settled_c(point.limit_w, leaking=False))
        hot = thermal.settled_c(held.power_w, leaking=True)
        return held, held.power_w + thermal.leakage_w(hot)
