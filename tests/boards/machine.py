"""The machine behind the files: the simulators' physics, in real time or in time that a test advances."""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agents.devices.simulated.physics import Chip, OperatingPoint, Pace, Work

BATCHES = (1, 2, 4, 8, 16)
BOUNDS_MS = tuple(0.5 * 1.01**k for k in range(900))
"""The histogram's bounds: a hundredth apart, to 3.9 s."""
JITTER = 0.01
TRIP_C, COOL_K = 95.0, -3.0
"""The temperature at which it is throttled, and the drop at which that ends."""


@dataclass
class Machine:
    """A chip at work, one batch after another. Clocks are read from the files' state at each step.

    `clocks` returns GPU, memory and CPU clock in MHz and the power limit in W. Over `trip_c` the GPU is
    throttled to `hot_mhz` until it has cooled.
    """

    chip: Chip
    work: Work
    clocks: Callable[[], tuple[float, float, float, float]]
    batch: int = 8
    hot_mhz: float = 0.0
    trip_c: float = TRIP_C
    seed: int = 0
    manual: bool = False
    energy_j: float = 0.0
    items: int = 0
    hot: bool = False
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_s: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._turned = 0.0
        self._last = self.now()
        self._progress = 0.0
        self.celsius = self.chip.thermal.ambient_c
        self.power_w = 0.0

    def now(self) -> float:
        return self._turned if self.manual else time.monotonic()

    def take_by_hand(self) -> None:
        """From now on only `pass_s` advances the time."""
        self.advance()
        self._turned, self.manual = self.now(), True

    def pass_s(self, seconds: float) -> None:
        self._turned += seconds
        self.advance()

    def point(self) -> OperatingPoint:
        gpu, memory, cpu, limit = self.clocks()
        held = min(gpu, self.hot_mhz) if self.hot and self.hot_mhz else gpu
        return OperatingPoint(held, memory, cpu, limit, self.batch)

    def pace(self) -> Pace:
        return self.chip.capped(self.work, self.point(), self.celsius)

    def advance(self) -> None:
        """Simulate the time since the last call, in steps that suit the temperature."""
        left = self.now() - self._last
        self._last += left
        while left > 0.0:
            step = min(left, 0.25)
            self._step(step)
            left -= step

    def _step(self, seconds: float) -> None:
        pace, thermal = self.pace(), self.chip.thermal
        self.celsius, joules = thermal.warm(self.celsius, pace.power_w, seconds, leaking=True)
        self.hot = self.celsius > self.trip_c + (COOL_K if self.hot else 0.0)
        self.power_w = joules / seconds
        self.energy_j += joules
        self._progress += seconds / pace.step_s
        while self._progress >= 1.0:
            self._progress -= 1.0
            took_s = pace.step_s * (1.0 + JITTER * abs(self._random.gauss(0.0, 1.0)))
            self.counts[bisect.bisect_left(BOUNDS_MS, took_s * 1000.0)] += self.batch
            self.sum_s += took_s * self.batch
            self.items += self.batch

    def metrics(self) -> str:
        """Return the workload's metrics for Prometheus."""
        self.advance()
        name, total, lines = "batch_seconds", 0, ["# TYPE batch_seconds histogram"]
        for bound, count in zip(BOUNDS_MS, self.counts, strict=False):
            total += count
            lines.append(f'{name}_bucket{{le="{bound / 1000.0:.9g}"}} {total}')
        total += self.counts[-1]
        lines += [f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_count {total}"]
        return "\n".join([*lines, f"{name}_sum {self.sum_s:.9g}", ""])


def faster(work: Work, times: float) -> Work:
    """Return the work made faster by a factor: a study of hours then takes minutes."""
    names = (
        "compute_fixed_ms",
        "compute_ms",
        "memory_fixed_ms",
        "memory_ms",
        "host_fixed_ms",
        "host_ms",
    )
    return replace(work, **{name: getattr(work, name) / times for name in names})
