"""Made-up devices with a single knob: a power cap or a clock under a served model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from tests.bench.made_up.formula import Silicon, SurfaceFormula, ladder, number
from tuner.core import Setting

GRAIN_MHZ = 15
IDLEST = 0.05
"""The lowest clock of a firmware, as a share of the highest."""


def _served(rng: Random, watts: float) -> tuple[Silicon, tuple[float, float, float], float]:
    """Return a chip, the seconds per token of cores, memory and host, and the power of its memory."""
    chip = Silicon.drawn(rng, watts * rng.uniform(0.75, 0.95))
    # Decoding reads the weights and hardly uses the cores; a prefill does the reverse.
    cores = math.exp(rng.uniform(-1.6, 0.9))
    host = rng.uniform(0.0, 0.12) * (1.0 + cores)
    return chip, (cores, 1.0, host), watts * rng.uniform(0.08, 0.3)


def _shown(
    chip: Silicon, parts: tuple[float, float, float], memory_w: float, clock: float, apart: float
) -> tuple[float, float]:
    """Return the time of a token, and the power meanwhile, at a share of the highest clock."""
    cores, bus = parts[0] / clock, parts[1] * (0.92 + 0.08 / clock)
    both = (cores**apart + bus**apart) ** (1.0 / apart)
    time = both + parts[2]
    power = chip.watts(clock, 0.3 + 0.7 * cores / time) + memory_w * (0.35 + 0.65 * bus / time)
    return time, power


def power_cap(rng: Random) -> SurfaceFormula:
    """Return a card with only a power cap, in steps of 5 to 20 W, serving a language model.

    The firmware runs the highest clock whose power fits the cap. A cap above the workload's power has
    no effect. Below, latency is first nearly flat, then rises steeply as the constant power takes most
    of the cap.
    """
    watts = rng.uniform(150.0, 600.0)
    caps = ladder(watts * rng.uniform(0.25, 0.55), watts, rng.randint(8, 40), 5)
    chip, parts, memory_w = _served(rng, watts * rng.uniform(0.65, 1.25))
    apart, latency_ms = rng.choice((3.0, 6.0, 20.0)), rng.uniform(1.0, 80.0)
    most_mhz = GRAIN_MHZ * round(rng.uniform(1400, 2900) / GRAIN_MHZ)

    def truth(setting: Setting) -> Mapping[str, float]:
        cap = number(setting["power_limit_w"])
        # The firmware alternates between the two steps around the cap; the mean lies between them.
        low, high = IDLEST, 1.0
        if _shown(chip, parts, memory_w, high, apart)[1] > cap:
            for _ in range(40):
                middle = 0.5 * (low + high)
                fits = _shown(chip, parts, memory_w, middle, apart)[1] <= cap
                low, high = (middle, high) if fits else (low, middle)
        else:
            low = high
        time, power = _shown(chip, parts, memory_w, max(low, GRAIN_MHZ / most_mhz), apart)
        latency = latency_ms * time
        return {"energy_j": power * latency / 1e3, "latency_ms": latency, "power_w": power}

    return SurfaceFormula(
        ladders={"power_limit_w": caps}, default={"power_limit_w": caps[-1]}, truth=truth
    )


def one_clock(rng: Random) -> SurfaceFormula:
    """Return a card with only a clock, serving a language model."""
    watts = rng.uniform(20.0, 600.0)
    clocks = ladder(rng.uniform(210, 700), rng.uniform(1300, 2900), rng.randint(8, 40), GRAIN_MHZ)
    chip, parts, memory_w = _served(rng, watts)
    apart, latency_ms = rng.choice((3.0, 6.0, 20.0)), rng.uniform(1.0, 80.0)

    def truth(setting: Setting) -> Mapping[str, float]:
        clock = number(setting["gpu_clock_mhz"]) / clocks[-1]
        time, power = _shown(chip, parts, memory_w, clock, apart)
        latency = latency_ms * time
        return {"energy_j": power * latency / 1e3, "latency_ms": latency, "power_w": power}

    return SurfaceFormula(
        ladders={"gpu_clock_mhz": clocks}, default={"gpu_clock_mhz": clocks[-1]}, truth=truth
    )
