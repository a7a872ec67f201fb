"""The machine on which the agent runs: its name, boot and clock; its kind; its processors.

The kind matters because advice for one kind is wrong on another. For an offline CPU, or in a guest, some or
all files of the topology are missing; a missing file adds no break.

Sources: the kernel's Documentation/admin-guide/cputopology.rst (`physical_package_id`, `core_cpus_list`,
which older kernels call `thread_siblings_list`) and Documentation/ABI/testing/sysfs-devices-system-cpu
(`cache/index3/shared_cpu_list`, `nodeN`); proc(5) for /proc/stat and /proc/cpuinfo, where x86 guests have
the flag `hypervisor` and Arm processors the field `CPU implementer`; /sys/hypervisor, /sys/class/dmi/id and
the device tree for other guests, as in systemd-detect-virt(1). Podman and CRI-O create `.containerenv`,
Docker `.dockerenv`, systemd `run/systemd/container`, LXD `dev/lxd`; pods have Kubernetes' secrets.
Container runtimes mask powercap: podman pull requests 20501 and 20510, kubernetes/website 47229.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core import MeasurementError

CONTAINER_MARKS = (
    "run/.containerenv",
    ".dockerenv",
    "run/systemd/container",
    "dev/lxd",
    "run/secrets/kubernetes.io",
    "var/run/secrets/kubernetes.io",
)
GUESTS = re.compile(
    r"\b(QEMU|KVM|VMware|Xen|VirtualBox|Virtual Machine|HVM domU|OpenStack|KubeVirt|Amazon EC2|Bochs"
    r"|Parallels|BHYVE|Apple Virtualization|Google Compute Engine|Droplet|vServer|linux,dummy-virt)\b"
    r"(?!.*\.metal)",
    re.DOTALL,
)
"""Vendors and products of hypervisors, as a guest's firmware tables name them."""

COUNTED = ("user", "nice", "system", "irq", "softirq")
"""The times that count as work. `user` includes guests; `iowait` and `idle` are not work; `steal` is the
time of other machines."""
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq")
MOST_DIGITS = 20
"""Digits of 2^64; a longer text is not a counter."""

CPUS = "sys/devices/system/cpu"
UNKNOWN = "-1"
"""The kernel's package number on platforms that do not number packages."""


class HostClock:
    """A clock of the seconds since boot, including the time while the machine was suspended."""

    def monotonic(self) -> float:
        """Return the seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds; return at once if it is negative."""
        time.sleep(max(0.0, seconds))


def suspended_s() -> float:
    """Return the seconds for which the machine was suspended since boot."""

    def apart() -> float:
        """Return the difference between the clocks with and without the suspended time, in seconds."""
        awake_s = time.monotonic()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - awake_s

    return min(apart() for _ in range(3))  # the process may be preempted between the two reads


@dataclass(frozen=True, slots=True)
class Host:
    """The identity of a machine and of its current boot.

    `cores` counts all cores of the machine, not only those that this process may use, because
    /proc/stat sums over all of them.
    """

    name: str
    boot: str
    cores: int

    @property
    def agent(self) -> str:
        """The name of this machine's agent."""
        return f"agent@{self.name}"

    @classmethod
    def here(cls, root: Path = Path("/"), name: str = "") -> Host:
        """Return this machine, under the given name if it is not empty.

        The boot id is empty if the kernel does not report it.
        """
        try:
            boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return cls(name or platform.node() or "localhost", boot, os.cpu_count() or 1)


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


def busy_seconds(stat: str) -> float:
    """Return the busy time of all CPUs together since boot, in CPU seconds.

    Raises:
        MeasurementError: the text is not from /proc/stat.
    """
    match = re.match(r"cpu +(\d{1,20}(?: \d{1,20})*)", stat)
    numbers = match[1].split() if match else []
    if len(numbers) < len(FIELDS):
        raise MeasurementError(
            f"/proc/stat begins with {stat[:40]!r}, not with the CPU times",
            hint="this needs a Linux kernel with procfs",
        )
    ticks = dict(zip(FIELDS, map(int, numbers), strict=False))
    return sum(ticks[name] for name in COUNTED) / os.sysconf("SC_CLK_TCK")


def model_name(cpuinfo: str) -> str:
    """Return the kernel's name of the CPU; "unknown CPU" on Arm, where the kernel reports no name."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else "unknown CPU"


def required_text(path: Path) -> str:
    """Return a file's text, with `�` for invalid UTF-8. Raises MeasurementError: it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(f"cannot read {path}: {error.strerror}") from error


def whole_number(path: Path) -> int:
    """Return the number of at most 64 bits in a file. Raises MeasurementError."""
    text = required_text(path).strip()
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise MeasurementError(f"{path} contains {text[:40]!r}, not an integer")
    return int(text)


def text_of(path: Path) -> str:
    """Return a file's text, with `�` for invalid UTF-8; empty if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def contained(root: Path) -> bool:
    """Return whether this process runs in a container, judged by the files that runtimes create."""
    return any((root / mark).exists() for mark in CONTAINER_MARKS)


def virtual(root: Path) -> bool:
    """Return whether this is a virtual machine, judged by the marks that hypervisors leave."""
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    files = [f"sys/class/dmi/id/{file}" for file in ("sys_vendor", "product_name")]
    names = "\n".join(text_of(root / f) for f in (*files, "proc/device-tree/compatible"))
    xen = text_of(root / "sys/hypervisor/type").strip()
    return bool(flags or xen or GUESTS.search(names))


def arm(root: Path) -> bool:
    """Return whether the machine has Arm processors."""
    return "CPU implementer" in text_of(root / "proc/cpuinfo")


def jetson(root: Path) -> bool:
    """Return whether the machine is a Jetson board."""
    return "nvidia,tegra" in text_of(root / "proc/device-tree/compatible")


def masked(folder: Path) -> bool:
    """Return whether all links in a folder of /sys/class are broken, as under a container runtime."""
    links = list(folder.iterdir()) if folder.is_dir() else []
    return bool(links) and not any(link.exists() for link in links)
