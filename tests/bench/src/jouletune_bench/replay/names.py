"""The roles of a foreign table's knobs and the quantities of its metrics, from the columns' names.

The names are those that drivers, tools and servers use (NVML, sysfs, rocm-smi, jetson_clocks, RAPL,
OpenMP, MPI, vLLM, Triton), and those of published tables; if they disagree the choice is ours. Devices
declare the roles of their knobs; only in foreign tables they must be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tuner.core import (
    Better,
    Kind,
    OverDevices,
    OverWindows,
    Quantity,
    Role,
    standard,
)

START = r"(^|[._])"
"""The start of a word in a name."""

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
    (Role.UNKNOWN, r"offset|sampling|refresh|poll|_rate_[kmg]?hz$"),
    (Role.UNKNOWN, r"batching$|batch.*(_[mun]?s|timeout|delay|window)$"),
    (Role.MEMORY_CLOCK, rf"({SHARED}).*({CLOCK}|mts$)|{START}(lmc|[muf]clk)($|[._])"),
    (Role.CPU_CLOCK, rf"({CPUS}).*{CLOCK}"),
    (Role.CORE_CLOCK, rf"{CLOCK}|(clk|clocks?|freq)[._](sm|gr|level)|{START}lgc$"),
    (Role.POWER_LIMIT, r"power.*(limit|cap|budget|target|max)|max_power"),
    (Role.POWER_LIMIT, rf"{START}(c?tdp|p?cap|pl[12]?|plimit|ppt|rapl|watts?)($|[._])|_[mu]?w$"),
    (Role.PARALLEL, r"threads?_batch$"),
    (Role.CEILING, CEILING),
    (Role.BATCH, rf"batch|{START}m?bsz?($|[._])"),
    (Role.HOST_CORES, rf"^(?=.*cpu).*({SHARES})"),
    (Role.PARALLEL, SHARES),
)


SUFFIXES: Mapping[str, Quantity] = {
    "_per_j": Quantity("1/J"),
    "_per_w": Quantity("1/W"),
    "_per_s": Quantity("1/s", Better.MORE, Kind.RATE, OverDevices.LEAST),
    "_j": Quantity("J", Better.LESS, Kind.ENERGY, OverDevices.SUM),
    "_w": Quantity("W", Better.LESS, Kind.POWER, OverDevices.SUM),
    "_ms": Quantity("ms", Better.LESS, Kind.TIME),
    "_s": Quantity("s", Better.LESS, Kind.TIME),
}
"""Quantities by the end of a metric's name; the first match counts."""


def quantity_named(metric: str) -> Quantity:
    """Return the quantity of a table's metric; without a known end it has no unit and may be negative."""
    exact = standard(metric)
    if exact is not None:
        return exact
    ends = (quantity for suffix, quantity in SUFFIXES.items() if metric.endswith(suffix))
    by_suffix = next(ends, Quantity("", signed=True))
    quantile = re.search(r"_p\d{2,4}(_|$)", metric)
    return replace(by_suffix, over_windows=OverWindows.TAIL) if quantile else by_suffix


def roles_of(names: Iterable[str]) -> Mapping[str, Role]:
    """Return the roles of one table's knobs; UNKNOWN if a name shows none.

    A CPU is a GPU's host if any name contains `gpu`, or if the table also has a core clock.
    """
    roles = {name: _role(name.lower()) for name in names}
    hosted = {Role.CORE_CLOCK, Role.CPU_CLOCK} <= {*roles.values()}
    if hosted or any("gpu" in name.lower() for name in roles):
        alone = {Role.CPU_CLOCK: Role.HOST_CLOCK}
    else:
        alone = {Role.HOST_CORES: Role.PARALLEL}
    return {name: alone.get(role, role) for name, role in roles.items()}


def _role(name: str) -> Role:
    return next((r for r, pattern in PATTERNS if re.search(pattern, name)), Role.UNKNOWN)
