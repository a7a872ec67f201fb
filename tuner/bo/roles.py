"""What a knob does and what a metric tells, as far as their names tell.

The names are those that drivers, tools and servers use (NVML, sysfs, rocm-smi, jetson_clocks, RAPL,
OpenMP, MPI, vLLM, Triton), and what published tables call them. Our own choice where they disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    """What a knob does, as far as its name tells."""

    MEMORY_CLOCK = "memory clock"
    CPU_CLOCK = "CPU clock"
    CORE_CLOCK = "core clock"
    POWER_LIMIT = "power limit"
    BATCH = "batch"
    CPU_CORES = "CPU cores"
    PARALLEL = "parallel resource"
    NONE = "unknown"


START = r"(^|[._])"
"""Where a word of a name begins."""

END = r"(_(level|idx|index|limit|cap|max|target|set))?(_?[kmg]?hz|_mts)?$"
CLOCK = rf"((clock(_speed)?|clk|freq|frequency)s?{END}|{START}[kmg]?hz$|_[kmg]?hz$|{START}f(max)?$)"
SHARED = rf"mem|emc|dram|vram|hbm|ddr|uncore|{START}([muf]clk|ram|mif|bus|ring|fabric|soc|noc)"
CPUS = rf"cpu|scaling|{START}(big|little|cluster|policy|a[0-9]{{2}})"
COUNTED = (
    r"(threads?|cores?|workers?|instances?|replicas?|gpus?|parallel(ism)?|process(es)?|procs?|jobs?"
    r"|v?cpus?|ranks?|tasks?|nodes?|sockets?|shards?|devices?|servers?|pods?|executors?|streams?|slices?"
    r"|sms?|cus?|tpcs?)"
)
CEILING = r"num_seqs|concurren|running_req|in_?flight"
SHARES = (
    rf"{START}(n?{COUNTED}|[tpde]p|np|nt|nproc)"
    r"($|[._](count|size|num|degree|percentage|pct|active|online|per[._].*)$)|world_size|num_cpus"
)
PATTERNS = (
    (Role.NONE, r"offset|sampling|refresh|poll|_rate_[kmg]?hz$"),
    (Role.NONE, r"batching$|batch.*(_[mun]?s|timeout|delay|window)$"),
    (Role.MEMORY_CLOCK, rf"({SHARED}).*({CLOCK}|mts$)|{START}(lmc|[muf]clk)($|[._])"),
    (Role.CPU_CLOCK, rf"({CPUS}).*{CLOCK}"),
    (Role.CORE_CLOCK, rf"{CLOCK}|(clk|clocks?|freq)[._](sm|gr|level)|{START}lgc$"),
    (Role.POWER_LIMIT, r"power.*(limit|cap|budget|target|max)|max_power"),
    (Role.POWER_LIMIT, rf"{START}(c?tdp|p?cap|pl[12]?|plimit|ppt|rapl|watts?)($|[._])|_[mu]?w$"),
    (Role.PARALLEL, r"threads?_batch$"),
    (Role.BATCH, rf"batch|{START}m?bsz?($|[._])|{CEILING}"),
    (Role.CPU_CORES, rf"^(?=.*cpu).*({SHARES})"),
    (Role.PARALLEL, SHARES),
)


def role(name: str) -> Role:
    """Return what a knob of that name does; NONE where nothing tells."""
    small = name.lower()
    return next((r for r, pattern in PATTERNS if re.search(pattern, small)), Role.NONE)


def slows(name: str) -> bool:
    """Return whether nothing is ever faster for lowering a knob of that name: clocks and power limits."""
    return role(name) in (Role.MEMORY_CLOCK, Role.CPU_CLOCK, Role.CORE_CLOCK, Role.POWER_LIMIT)


def is_ceiling(name: str) -> bool:
    """Return whether a knob of that name limits what is under way, rather than setting it."""
    return re.search(CEILING, name.lower()) is not None


def names_gpu(names: Iterable[str]) -> bool:
    """Return whether the name of any knob speaks of a GPU."""
    return any("gpu" in name.lower() for name in names)


class Quantity(StrEnum):
    """What a metric tells, as far as its name tells."""

    TIME = "time"
    RATE = "rate"
    POWER = "power"
    ENERGY = "energy"
    NONE = "unknown"


SUFFIXES = (
    (Quantity.NONE, ("_per_j", "_per_w")),
    (Quantity.RATE, ("_per_s",)),
    (Quantity.ENERGY, ("_j",)),
    (Quantity.POWER, ("_w",)),
    (Quantity.TIME, ("_s", "_ms")),
)


def quantity(metric: str) -> Quantity:
    """Return what a metric of that name tells; NONE where nothing tells."""
    return next((q for q, suffixes in SUFFIXES if metric.endswith(suffixes)), Quantity.NONE)
