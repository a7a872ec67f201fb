"""A made-up device with a workload on it, before it becomes a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tuner.core import Setting, Value

Truth = Callable[[Setting], Mapping[str, float]]
"""A setting's true `energy_j`, `latency_ms`, `power_w` and, for some surfaces, `accuracy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceFormula:
    """The knobs' ladders, the vendor's defaults, and the true metrics of every setting.

    `breaks` are the knobs' breaks as a host reports them. `least_accuracy` is the share of the
    baseline's accuracy that must be kept; None without such a limit.
    """

    ladders: Mapping[str, tuple[Value, ...]]
    default: Setting
    truth: Truth
    objective: str = "energy_j"
    limited: str = "latency_ms"
    least_accuracy: float | None = None
    breaks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silicon:
    """A chip's voltages and power. Clocks are shares of the highest.

    Up to `knee` the voltage is `low`; above, it rises to 1 with the exponent `bend`, in the regulator's
    steps. `static_w` is constant, `leak_w` grows with the square of the voltage, `switch_w` also with
    the clock.
    """

    knee: float
    low: float
    bend: float
    static_w: float
    leak_w: float
    switch_w: float

    @classmethod
    def drawn(cls, rng: Random, watts: float) -> Silicon:
        """Return a chip that draws about this many watts at its highest clock and full load."""
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
        """Return the power at a clock, with this share of busy cycles."""
        volts2 = self.volts(clock) ** 2
        return self.static_w + self.leak_w * volts2 + self.switch_w * activity * volts2 * clock


def ladder(least: float, most: float, rungs: int, grain: int = 1) -> tuple[int, ...]:
    """Return this many values from least to most, evenly spaced, as multiples of `grain`."""
    step = (most - least) / (rungs - 1)
    return tuple(sorted({grain * round((least + step * i) / grain) for i in range(rungs)}))


def number(value: Value) -> float:
    """Return a knob's value as a number: these ladders have only numbers."""
    return float(value)
