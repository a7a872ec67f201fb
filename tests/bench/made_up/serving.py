"""Made-up inference: a server with a ceiling on its batch, and runtime knobs with an accuracy to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from tests.bench.made_up.formula import Silicon, SurfaceFormula, ladder, number
from tuner.core import Setting, Value

CEILINGS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)


def serving(rng: Random) -> SurfaceFormula:
    """Return a language model served under a ceiling on concurrent requests.

    The latency between two tokens grows with the ceiling and the energy per token falls, up to the
    number of callers. Beyond the memory for contexts requests are evicted and computed again.
    """
    ways = rng.choice(((1, 2), (2, 4), (1, 2, 4), (2, 4, 8), (4, 8)))
    ceilings = CEILINGS[rng.randint(0, 2) : rng.randint(8, len(CEILINGS))]
    callers = math.inf if rng.random() < 0.5 else rng.uniform(90, 700)
    weights_ms, flops_ms = rng.uniform(6.0, 60.0), rng.uniform(0.02, 0.25)
    context_ms, room = rng.uniform(0.005, 0.12), rng.uniform(60, 500)
    link_ms, host_ms = rng.uniform(0.1, 2.5), rng.uniform(0.2, 4.0)
    per_request_ms, redo = rng.uniform(0.0, 0.02), rng.uniform(0.3, 1.5)
    clocks = ladder(rng.uniform(700, 1000), rng.uniform(1700, 2100), 6, 15)
    with_clock = rng.random() < 0.4
    chip = Silicon.drawn(rng, rng.uniform(250, 700))

    def truth(setting: Setting) -> Mapping[str, float]:
        devices = number(setting["tensor_parallel"])
        clock = number(setting.get("gpu_clock_mhz", clocks[-1])) / clocks[-1]
        batch = min(number(setting["max_num_seqs"]), callers)
        memory = (weights_ms + context_ms * batch) / devices
        compute = flops_ms * math.ceil(batch / 8) * 8 / devices / clock
        step = max(memory, compute) + 0.15 * min(memory, compute)
        step += host_ms + per_request_ms * batch
        step += link_ms * math.log2(devices) * (1.0 + batch / 256.0)
        over = max(0.0, batch / (room * devices) - 1.0)
        slowed = 1.0 + redo * min(2.0, over) + (0.1 if over else 0.0)
        activity = (compute + 0.45 * memory) / step
        power = devices * chip.watts(clock, min(1.0, activity))
        latency = step * slowed
        return {
            "energy_j": power * latency / batch / 1e3,
            "latency_ms": latency,
            "power_w": power,
        }

    ladders: dict[str, tuple[Value, ...]] = {"tensor_parallel": ways, "max_num_seqs": ceilings}
    default: dict[str, Value] = {
        "tensor_parallel": ways[-1],
        "max_num_seqs": ceilings[(len(ceilings) - 1) // 2],
    }
    if with_clock:
        ladders["gpu_clock_mhz"], default["gpu_clock_mhz"] = clocks, clocks[-1]
    return SurfaceFormula(ladders=ladders, default=default, truth=truth)


TYPES = {
    "float32": (1.0, 1.0, 0.0, 0.0),
    "tf32": (0.62, 0.97, 0.0, 0.001),
    "bfloat16": (0.42, 0.9, 0.0, 0.006),
    "float16": (0.4, 0.9, 0.0, 0.006),
    "int8": (0.28, 0.8, 0.002, 0.04),
    "int4": (0.24, 0.78, 0.01, 0.12),
}
"""Type: its time and power relative to float32's, and the range of the accuracy that it may cost."""
BACKENDS = {
    "eager": (1.0, 1.0, 0.0),
    "compiled": (0.8, 0.25, 0.0),
    "onnx": (0.88, 0.4, 0.001),
    "engine": (0.66, 0.15, 0.004),
}
"""Backend: its time in kernels and launches relative to the eager one's, and the accuracy that it may
cost."""
SCHEDULERS = ("fifo", "shortest", "priority", "fair")


def runtime(rng: Random) -> SurfaceFormula:
    """Return an inference runtime: type, backend, graphs, scheduler and batch, and an accuracy to keep.

    Types below two bytes may cost too much accuracy; some backends lack a type and convert; graphs pay
    if launches are expensive, but not with a backend without launches.
    """
    types = ("float32", *rng.sample(list(TYPES)[1:], rng.randint(2, 4)))
    backends = ("eager", *rng.sample(list(BACKENDS)[1:], rng.randint(1, 3)))
    lost = {t: rng.uniform(*TYPES[t][2:]) for t in types}
    rough = {b: rng.uniform(0.0, BACKENDS[b][2]) for b in backends}
    lacking = {(rng.choice(types[1:]), rng.choice(backends)) for _ in range(2)}
    jitter = {(t, b): math.exp(rng.gauss(0.0, 0.08)) for t in types for b in backends}
    order = {s: math.exp(rng.gauss(0.0, 0.03)) for s in SCHEDULERS}
    kernels_ms, launch_ms = rng.uniform(4.0, 40.0), rng.uniform(1.0, 12.0)
    fixed = rng.uniform(0.2, 0.8)
    batches = rng.choice(((1, 2, 4, 8), (4, 8, 16, 32), (1, 4, 16)))
    graphed, power_w = rng.choice(backends), rng.uniform(40, 400)
    accuracy, idle = rng.uniform(0.6, 0.95), rng.uniform(0.25, 0.5)

    def truth(setting: Setting) -> Mapping[str, float]:
        kind, backend = str(setting["dtype"]), str(setting["backend"])
        times, watts, *_ = TYPES[kind]
        in_kernels, in_launches, _ = BACKENDS[backend]
        kernels = kernels_ms * in_kernels * jitter[kind, backend]
        kernels *= 1.15 if (kind, backend) in lacking else times
        batch = number(setting["batch_size"])
        kernels *= fixed + (1.0 - fixed) * batch / batches[0]
        graphs = bool(setting["cuda_graphs"])
        launches = launch_ms * in_launches * (0.2 if graphs and backend != graphed else 1.0)
        launches *= 1.08 if graphs and backend == graphed else 1.0
        latency = (kernels + launches) * order[str(setting["scheduler"])]
        power = power_w * (idle + (1.0 - idle) * watts * kernels / (kernels + launches))
        return {
            "energy_j": power * latency / batch / 1e3,
            "latency_ms": latency,
            "power_w": power,
            "accuracy": accuracy * (1.0 - lost[kind]) * (1.0 - rough[backend]),
        }

    ladders: dict[str, tuple[Value, ...]] = {
        "dtype": types,
        "backend": backends,
        "cuda_graphs": (False, True),
        "scheduler": SCHEDULERS[: rng.randint(2, 4)],
        "batch_size": batches,
    }
    default: dict[str, Value] = {name: values[0] for name, values in ladders.items()}
    default["batch_size"] = batches[(len(batches) - 1) // 2]
    return SurfaceFormula(
        ladders=ladders,
        default=default,
        truth=truth,
        least_accuracy=1.0 - rng.uniform(0.01, 0.02),
    )
