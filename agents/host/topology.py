"""The CPU counts at which a program that uses a host's CPUs in order reaches a new socket, node or cache.

Sources: the kernel's Documentation/admin-guide/cputopology.rst (`physical_package_id`, `core_cpus_list`,
which older kernels call `thread_siblings_list`) and Documentation/ABI/testing/sysfs-devices-system-cpu
(`cache/index3/shared_cpu_list`, `nodeN`). For an offline CPU, or in a guest, some or all of these files
are missing; a missing file adds no break.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.host.processor import text_of

CPUS = "sys/devices/system/cpu"
UNKNOWN = "-1"
"""The kernel's package number on platforms that do not number packages."""


def core_breaks(cpus: Sequence[int], root: Path = Path("/")) -> tuple[float, ...]:
    """Return the numbers of CPUs, used in this order, after which the next CPU differs from those before.

    The next CPU is then the first of a socket, a NUMA node or a level-3 cache, or it starts the rest of
    the list that has only second threads of cores in use.
    """
    folders = [root / CPUS / f"cpu{cpu}" for cpu in cpus]
    opened: set[tuple[str, str]] = set()
    breaks = set()
    for count, folder in enumerate(folders):
        domains = _domains(folder)
        kinds = {kind for kind, _ in opened}
        if any(kind in kinds for kind, _ in domains - opened):
            breaks.add(count)
        opened |= domains
    cores = [_core(folder) for folder in folders]
    first = len(cores)
    while first and cores[first - 1] and cores[first - 1] in cores[: first - 1]:
        first -= 1
    if 0 < first < len(cores):
        breaks.add(first)
    return tuple(float(count) for count in sorted(breaks))


def _domains(folder: Path) -> set[tuple[str, str]]:
    """Return the domains that a CPU shares with others, by kind and name: package, cache and NUMA nodes."""
    package = text_of(folder / "topology/physical_package_id").strip()
    cache = text_of(folder / "cache/index3/shared_cpu_list").strip()
    domains = {("package", package), ("cache", cache)} - {("package", UNKNOWN)}
    domains |= {("node", node.name) for node in folder.glob("node[0-9]*")}
    return {(kind, name) for kind, name in domains if name}


def _core(folder: Path) -> str:
    """Return the list of threads of a CPU's core; empty if the kernel does not report it."""
    now, before = (
        text_of(folder / f"topology/{name}").strip()
        for name in ("core_cpus_list", "thread_siblings_list")
    )
    return now or before
