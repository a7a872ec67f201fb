"""Made-up accelerators: tiles, throttling, memory-bound or not, and a fine ladder with a flat optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from tests.bench.made_up.formula import Silicon, SurfaceFormula, ladder, number
from tuner.core import Setting, Value

WARPS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192)
"""Batch sizes, including some that fill no tile."""


def tiles(rng: Random) -> SurfaceFormula:
    """Return a kernel whose batch is padded to tiles and run in waves over the processors.

    A batch just above a wave takes a whole further wave; one that is not a multiple of eight leaves the
    fast path; from some size on the library uses another algorithm. The latency is that of a batch, or
    of a pass over all data.
    """
    tile, processors = rng.choice((8, 16, 32)), rng.choice((46, 60, 80, 108, 132))
    blocks = rng.randint(processors // 6, processors)
    launch, traffic = rng.uniform(0.1, 1.2), rng.uniform(0.03, 0.5)
    weights, ragged = rng.uniform(0.1, 1.2), rng.uniform(1.0, 1.25)
    switch, gain = rng.choice((24, 48, 64, 96)), rng.uniform(0.75, 1.1)
    clocks = ladder(rng.uniform(500, 900), rng.uniform(1400, 2000), rng.randint(6, 12), 15)
    batches = WARPS[: rng.randint(10, len(WARPS))]
    chip, unit_ms = Silicon.drawn(rng, rng.uniform(120, 500)), rng.uniform(0.3, 4.0)
    of_pass = rng.random() < 0.4

    def truth(setting: Setting) -> Mapping[str, float]:
        batch, clock = number(setting["batch_size"]), number(setting["gpu_clock_mhz"]) / clocks[-1]
        waves = math.ceil(math.ceil(batch / tile) * blocks / processors)
        compute = waves / clock * (ragged if batch % 8 else 1.0)
        compute *= gain if batch >= switch else 1.0
        memory = weights + traffic * batch / tile
        busy = max(compute, memory) + 0.1 * min(compute, memory)
        step_ms = unit_ms * (launch + busy)
        activity = (compute * clock + 0.35 * memory) / (compute * clock + memory)
        power = chip.watts(clock, activity * busy / (launch + busy))
        latency = step_ms * math.ceil(2000 / batch) if of_pass else step_ms
        return {"energy_j": power * step_ms / batch / 1e3, "latency_ms": latency, "power_w": power}

    return SurfaceFormula(
        ladders={"batch_size": batches, "gpu_clock_mhz": clocks},
        default={"batch_size": batches[(len(batches) - 1) // 2], "gpu_clock_mhz": clocks[-1]},
        truth=truth,
    )


MODES = {"quiet": (1.35, 0.01), "balanced": (1.0, 0.03), "full": (0.8, 0.08)}
"""Fan mode: its thermal resistance, and its own power, as shares."""


def throttling(rng: Random) -> SurfaceFormula:
    """Return a device that heats up: above a temperature the firmware alternates between two clocks.

    A clock beyond the cooling is slower than the highest sustained one, and leaks more.
    """
    clocks = ladder(rng.uniform(300, 700), rng.uniform(1500, 2600), rng.randint(14, 28), 5)
    chip = Silicon.drawn(rng, 100.0)
    room, hottest = rng.uniform(22, 45), rng.uniform(75, 95)
    resistance = (hottest - room) / rng.uniform(62, 105)
    scale, swing = rng.uniform(0.1, 3.5), rng.uniform(0.03, 0.2)
    bound, latency_ms = rng.uniform(0.5, 0.97), rng.uniform(4.0, 300.0)
    modes = tuple(MODES) if rng.random() < 0.6 else ("balanced",)

    def drawn(clock: float, cooling: float) -> tuple[float, float]:
        """Return the power and the temperature at which a clock settles."""
        celsius = room
        for _ in range(60):
            hot = math.exp(min(3.0, (celsius - 60.0) / 45.0))
            power = chip.watts(clock, 0.9) + chip.leak_w * (hot - 1.0)
            celsius += 0.5 * (room + resistance * cooling * power - celsius)
        return power, celsius

    def settled(clock: float, cooling: float) -> tuple[float, float]:
        """Return the mean clock and the power, throttled or not."""
        power, celsius = drawn(clock, cooling)
        if celsius <= hottest:
            return clock, power
        cool = clocks[0] / clocks[-1]
        hot = clock
        for _ in range(30):
            middle = 0.5 * (cool + hot)
            cool, hot = (middle, hot) if drawn(middle, cooling)[1] <= hottest else (cool, middle)
        lost = swing * (1.0 - cool / clock)
        return cool * (1.0 - lost), drawn(cool, cooling)[0] * (1.0 + 0.5 * lost)

    def truth(setting: Setting) -> Mapping[str, float]:
        cooling, fan = MODES[str(setting.get("power_mode", "balanced"))]
        clock, power = settled(number(setting["gpu_clock_mhz"]) / clocks[-1], cooling)
        latency = latency_ms * (bound / clock + 1.0 - bound)
        power = scale * (power + 100.0 * fan)
        return {"energy_j": power * latency / 1e3, "latency_ms": latency, "power_w": power}

    ladders: dict[str, tuple[Value, ...]] = {"gpu_clock_mhz": clocks}
    default: dict[str, Value] = {"gpu_clock_mhz": clocks[-1]}
    if len(modes) > 1:
        ladders["power_mode"], default["power_mode"] = modes, "full"
    return SurfaceFormula(ladders=ladders, default=default, truth=truth)


def roofline(rng: Random) -> SurfaceFormula:
    """Return a kernel bound by compute or memory on a device with clocks and a power limit.

    It runs at the lower of the requested clock and the highest one within the power limit; which of
    both roofs is lower depends on either clock.
    """
    clocks = ladder(rng.uniform(200, 600), rng.uniform(1300, 2000), rng.randint(8, 14), 15)
    memories = ladder(rng.uniform(800, 2000), rng.uniform(4000, 9000), rng.randint(2, 4), 50)
    watts = rng.uniform(80, 700)
    limits = ladder(watts * rng.uniform(0.35, 0.5), watts, rng.randint(5, 9), 5)
    chip = Silicon.drawn(rng, watts * rng.uniform(0.6, 1.05))
    memory_w = watts * rng.uniform(0.05, 0.25)
    balance, latency_ms = math.exp(rng.uniform(-0.7, 0.7)), rng.uniform(2.0, 200.0)
    apart, host = rng.choice((4.0, 8.0, 40.0)), rng.uniform(0.0, 0.15)

    def times(clock: float, memory: float) -> tuple[float, float, float]:
        """Return the total time, and the shares of it in which cores and memory are busy."""
        cores, bus = balance / clock, 1.0 / (memory * (0.85 + 0.15 * clock))
        both = (cores**apart + bus**apart) ** (1.0 / apart)
        return both + host, cores / (both + host), bus / (both + host)

    def power(clock: float, memory: float) -> float:
        _, cores, bus = times(clock, memory)
        return chip.watts(clock, 0.25 + 0.75 * cores) + memory_w * memory * (0.3 + 0.7 * bus)

    def truth(setting: Setting) -> Mapping[str, float]:
        clock_mhz = number(setting["gpu_clock_mhz"])
        memory = number(setting["memory_clock_mhz"]) / memories[-1]
        limit = number(setting["power_limit_w"])
        steps = [
            c
            for c in range(clocks[0], int(clock_mhz), 15)
            if power(c / clocks[-1], memory) <= limit
        ]
        fits = power(clock_mhz / clocks[-1], memory) <= limit
        clock = (clock_mhz if fits else max(steps, default=clocks[0])) / clocks[-1]
        time, *_ = times(clock, memory)
        drawn = min(power(clock, memory), max(limit, power(clocks[0] / clocks[-1], memory)))
        latency = latency_ms * time
        return {"energy_j": drawn * latency / 1e3, "latency_ms": latency, "power_w": drawn}

    ladders = {"gpu_clock_mhz": clocks, "memory_clock_mhz": memories, "power_limit_w": limits}
    return SurfaceFormula(
        ladders=ladders, default={k: v[-1] for k, v in ladders.items()}, truth=truth
    )


def fine_ladder(rng: Random) -> SurfaceFormula:
    """Return a device of a newer generation: a clock in many small steps, and a wide flat optimum.

    Its boost clocks are beyond the efficient voltages; the highest ones are never reached under load.
    """
    rungs = rng.randint(60, 120)
    clocks = ladder(rng.uniform(200, 400), rng.uniform(1900, 3000), rungs, 5)
    chip, reached = Silicon.drawn(rng, rng.uniform(60, 800)), rng.uniform(0.82, 1.0)
    bound, latency_ms = rng.uniform(0.08, 0.8), rng.uniform(1.0, 500.0)
    ripple, phase = rng.uniform(0.0, 0.006), rng.uniform(0.0, 6.0)
    gate = rng.uniform(0.0, 0.5)

    def truth(setting: Setting) -> Mapping[str, float]:
        clock = min(number(setting["gpu_clock_mhz"]) / clocks[-1], reached)
        wave = 1.0 + ripple * math.sin(phase + 90.0 * clock)
        time = (bound / clock + (1.0 - bound) * (0.96 + 0.04 / clock)) * wave
        activity = bound / clock / time
        power = chip.watts(clock, 1.0 - gate + gate * activity)
        latency = latency_ms * time
        return {"energy_j": power * latency / 1e3, "latency_ms": latency, "power_w": power}

    return SurfaceFormula(
        ladders={"gpu_clock_mhz": clocks}, default={"gpu_clock_mhz": clocks[-1]}, truth=truth
    )
