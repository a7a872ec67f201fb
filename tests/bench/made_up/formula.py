"""A made-up device with a workload on it, before it becomes a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tuner.core import Setting, Value

Truth = Callable[[Setting], Mapping[str, float]]
"""Setting to its true `energy_j`, `latency_ms`, `power_w` and, where there is one, `accuracy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceFormula:
    """The knobs' ladders, the vendor's defaults, and what every setting truly shows.

    `breaks` are those of the knobs that a host knows.
    `least_accuracy` is the share of the baseline's accuracy that has to be kept, None without one.
    """

    ladders: Mapping[str, tuple[Value, ...]]
    default: Setting
    truth: Truth
    objective: str = "energy_j"
    least_accuracy: float | None = None
    breaks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silicon:
    """A chip's voltages and power. Clocks are shares of the highest.

    Up to `knee` the voltage rests at `low`, then it rises to 1 bent by `bend`, in the regulator's steps.
    `static_w` flows at any load, `leak_w` with the square of the voltage, `switch_w` with the clock too.
    """

    knee: float
    low: float
    bend: float
    static_w: float
    leak_w: float
    switch_w: float

    @classmethod
    def drawn(cls, rng: Random, watts: float) -> Silicon:
        """Return a chip that draws about so many watts at its highest clock and full load."""
        static, leak = rng.uniform(0.08, 0.35), rng.uniform(0.05, 0.2)
        return cls(
            knee=rng.uniform(0.35, 0.7),
            low=rng.uniform(0.6, 0.8),
            bend=rng.uniform(1.0, 2.2),
            static_w=watts * static,
            leak_w=watts * leak,
            switch_w=watts * (1.0 - static - leak),
        )

    def volts(self, clock: float) -> float:
        """Return the voltage, as a share of the highest."""
        over = max(0.0, clock - self.knee) / (1.0 - self.knee)
        exact = self.low + (1.0 - self.low) * math.pow(over, self.bend)
        return round(exact * 160) / 160

    def watts(self, clock: float, activity: float) -> float:
        """Return the power at a clock, with a share of the cycles that do something."""
        volts2 = self.volts(clock) ** 2
        return self.static_w + self.leak_w * volts2 + self.switch_w * activity * volts2 * clock


def ladder(least: float, most: float, rungs: int, grain: int = 1) -> tuple[int, ...]:
    """Return so many values from least to most, evenly spaced, as multiples of `grain`."""
    step = (most - least) / (rungs - 1)
    return tuple(sorted({grain * round((least + step * i) / grain) for i in range(rungs)}))


def number(value: Value) -> float:
    """Return a knob's value as a number: the ladders of these knobs have nothing else."""
    return float(value)
