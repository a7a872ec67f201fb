"""Made-up servers: a queue with a cliff, threads over sockets, and switches of firmware and kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from tests.bench.made_up.formula import Silicon, SurfaceFormula, ladder, number
from tuner.core import Setting, Value

WINDOW_S = 10.0
"""The length of a window in s, for which an overloaded queue grows."""


def queue(rng: Random) -> SurfaceFormula:
    """Return a pool of workers that answers requests arriving at a rate: M/M/c, with a cliff.

    Latency is the 99th percentile of service and waiting (Erlang's C). Idle workers spin for a while,
    so fewer and slower workers save energy, until they are too few.
    """
    most = rng.choice((8, 12, 16, 24, 32))
    clocks = ladder(rng.uniform(800, 1400), rng.uniform(2600, 3800), rng.randint(7, 14), 100)
    memory, service_s = rng.uniform(0.1, 0.6), rng.uniform(0.004, 0.06)
    load, spin = rng.uniform(0.12, 0.5), rng.uniform(0.2, 0.7)
    shared, tail = rng.uniform(0.0, 0.4), rng.uniform(2.0, 4.6)
    chip = Silicon.drawn(rng, rng.uniform(60, 280))
    rate = load * most / service_s

    def truth(setting: Setting) -> Mapping[str, float]:
        workers, clock = number(setting["threads"]), number(setting["cpu_clock_mhz"]) / clocks[-1]
        held_s = service_s * ((1.0 - memory) / clock + memory)
        held_s *= 1.0 + shared * min(1.0, rate * held_s / most) ** 2
        busy = min(workers, rate * held_s)
        waiting_s = _waiting_p99_s(rate, held_s, int(workers))
        active = (busy + spin * (workers - busy)) / most
        power = chip.watts(clock, active * (0.6 + 0.4 / (1.0 + memory * clock)))
        served = min(rate, 0.99 * workers / held_s)
        return {
            "energy_j": power / served,
            "latency_ms": 1000.0 * (tail * held_s + waiting_s),
            "power_w": power,
        }

    ladders = {
        "threads": tuple(range(1, most + 1)) if most <= 16 else tuple(range(2, most + 1, 2)),
        "cpu_clock_mhz": clocks,
    }
    return SurfaceFormula(
        ladders=ladders,
        default={"threads": most, "cpu_clock_mhz": clocks[-1]},
        truth=truth,
        objective=rng.choice(("energy_j", "power_w")),
    )


def _waiting_p99_s(rate: float, held_s: float, workers: int) -> float:
    """Return the 99th percentile of an M/M/c queue's waits; past saturation it grows with the window."""
    offered = rate * held_s
    full = 0.985 * workers
    if offered >= full:
        backlog = WINDOW_S * (1.0 - full / offered)
        return backlog + _waiting_p99_s(full / held_s * 0.999, held_s, workers)
    blocking = 1.0
    for count in range(1, workers + 1):
        blocking = offered * blocking / (count + offered * blocking)
    waits = blocking / (1.0 - offered / workers * (1.0 - blocking))
    return max(0.0, math.log(100.0 * waits)) * held_s / (workers - offered)


def sockets(rng: Random) -> SurfaceFormula:
    """Return a parallel program on a server of several sockets, its threads packed socket by socket.

    Each further socket adds its bandwidth, wakes its uncore and makes memory remote. Beyond the cores
    threads use second hardware threads, which add little and contend.
    """
    count, cores = rng.choice((2, 2, 4)), rng.choice((8, 12, 16, 20, 28))
    ways = rng.choice((1, 2))
    total = count * cores * ways
    step = max(1, total // 40)
    serial, streaming = rng.uniform(0.002, 0.06), rng.uniform(0.2, 1.6)
    remote, lock, second = rng.uniform(0.0, 0.5), rng.uniform(0.0, 0.012), rng.uniform(0.0, 0.3)
    barrier, unit_s = rng.uniform(0.0, 0.004), rng.uniform(2.0, 90.0)
    core_w, uncore_w = rng.uniform(2.0, 7.0), rng.uniform(15.0, 45.0)
    idle_w, stall = rng.uniform(30.0, 110.0) * count / 2.0, rng.uniform(0.4, 0.8)
    policies: tuple[Value, ...] = rng.choice((("local",), ("local", "interleave")))

    def truth(setting: Setting) -> Mapping[str, float]:
        threads = int(number(setting["threads"]))
        first = min(threads, count * cores)
        opened = math.ceil(first / cores)
        spread = setting.get("memory_policy") == "interleave"
        rate = first + second * (threads - first)
        channels = count if spread else opened
        crossing = remote * (1.0 - 1.0 / channels)
        compute = (1.0 - serial) / rate
        memory = streaming / cores / channels * (1.0 + 0.3 * crossing)
        time = serial + max(compute * (1.0 + crossing), memory)
        time += barrier * math.log2(threads + 1.0) * opened + lock * max(0.0, threads - 4) / 100.0
        time *= 1.0 + (0.04 if threads > count * cores else 0.0)
        working = min(1.0, compute / (time - serial))
        per_core = core_w * (stall + (1.0 - stall) * working)
        power = idle_w + uncore_w * channels + per_core * (first + 0.25 * (threads - first))
        return {
            "energy_j": power * time * unit_s,
            "latency_ms": 1e3 * unit_s * time,
            "power_w": power,
        }

    ladders: dict[str, tuple[Value, ...]] = {
        "threads": tuple(sorted({*range(step, total + 1, step), cores, count * cores, total}))
    }
    default: dict[str, Value] = {"threads": total}
    if len(policies) > 1:
        ladders["memory_policy"], default["memory_policy"] = policies, policies[0]
    breaks = {"threads": tuple(float(cores * n) for n in range(1, count + 1))}
    return SurfaceFormula(ladders=ladders, default=default, truth=truth, breaks=breaks)


SWITCHES = {
    "turbo": (True, (-0.10, -0.03), (-0.28, -0.12)),
    "smt": (True, (-0.06, 0.05), (-0.10, -0.02)),
    "hugepages": (False, (-0.12, 0.01), (-0.02, 0.02)),
    "prefetch": (True, (-0.09, 0.06), (-0.06, -0.01)),
    "deep_idle": (False, (0.0, 0.09), (-0.20, -0.04)),
    "numa_balancing": (True, (-0.05, 0.03), (-0.03, 0.0)),
    "zero_copy": (False, (-0.08, 0.02), (-0.04, 0.01)),
    "mitigations": (True, (-0.07, -0.01), (-0.01, 0.01)),
}
"""Switch: its default, then the ranges of the effect of switching it on log time and log power."""
UNDONE = ("turbo", "smt", "prefetch", "numa_balancing", "mitigations")
"""Switched off they cost time or save it: the sign is drawn, mostly that of the range."""


def switches(rng: Random) -> SurfaceFormula:
    """Return a service with five to seven switches: most without effect, some with one only together."""
    names = rng.sample(list(SWITCHES), rng.randint(5, 7))
    effects = {n: _effects(rng, n) for n in names}
    pair = rng.sample(names, 2)
    together = (rng.uniform(-0.05, 0.08), rng.uniform(-0.1, 0.05))
    latency_ms, power_w = rng.uniform(3.0, 60.0), rng.uniform(60.0, 400.0)
    workers = rng.choice(((), (2, 4, 8)))
    parallel = rng.uniform(0.5, 0.95)

    def truth(setting: Setting) -> Mapping[str, float]:
        turned = [n for n in names if setting[n] != SWITCHES[n][0]]
        slower = sum(effects[n][0] for n in turned)
        hungrier = sum(effects[n][1] for n in turned)
        if all(n in turned for n in pair):
            slower, hungrier = slower + together[0], hungrier + together[1]
        latency, power = latency_ms * math.exp(slower), power_w * math.exp(hungrier)
        if workers:
            share = number(setting["workers"]) / workers[-1]
            latency *= 1.0 - parallel + parallel / share
            power *= 0.35 + 0.65 * share
        return {"energy_j": power * latency / 1e3, "latency_ms": latency, "power_w": power}

    ladders: dict[str, tuple[Value, ...]] = dict.fromkeys(names, (False, True))
    default: dict[str, Value] = {n: SWITCHES[n][0] for n in names}
    if workers:
        ladders["workers"], default["workers"] = workers, workers[-1]
    return SurfaceFormula(ladders=ladders, default=default, truth=truth)


def _effects(rng: Random, name: str) -> tuple[float, float]:
    """Return the effect of switching on log time and log power; small in one case of three."""
    _, times, powers = SWITCHES[name]
    weight = 0.1 if rng.random() < 0.33 else 1.0
    time = rng.uniform(*times)
    if name in UNDONE:
        time = -time
    return weight * time, weight * rng.uniform(*powers)
