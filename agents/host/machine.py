"""The kind of machine that a root's files are of: advice for one kind is wrong on another.

Sources: proc(5) for /proc/cpuinfo, whose flag `hypervisor` x86 guests have, and whose `CPU implementer` Arm
has; /sys/hypervisor and /sys/class/dmi/id for other guests. `.containerenv` is podman's mark, `.dockerenv`
Docker's. That runtimes mask powercap: podman pull requests 20501 and 20510, kubernetes/website 47229.
"""

from __future__ import annotations

import re
from pathlib import Path

from agents.host.processor import text_of

CONTAINER_MARKS = ("run/.containerenv", ".dockerenv")
GUESTS = re.compile(r"\b(QEMU|KVM|VMware|Xen|VirtualBox|Virtual Machine|HVM domU)\b")
"""Of hypervisors' makers and products, as guests see them in their firmware's tables."""


def contained(root: Path) -> bool:
    """Return whether this process runs in a container, as far as containers say so."""
    return any((root / mark).exists() for mark in CONTAINER_MARKS)


def virtual(root: Path) -> bool:
    """Return whether this is a virtual machine, as far as hypervisors say so."""
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    names = [text_of(root / f"sys/class/dmi/id/{file}") for file in ("sys_vendor", "product_name")]
    xen = text_of(root / "sys/hypervisor/type").strip()
    return bool(flags or xen or any(map(GUESTS.search, names)))


def arm(root: Path) -> bool:
    """Return whether its processors are Arm's."""
    return "CPU implementer" in text_of(root / "proc/cpuinfo")


def masked(folder: Path) -> bool:
    """Return whether all links of a folder of /sys/class lead nowhere, as where a runtime masks them."""
    links = list(folder.iterdir()) if folder.is_dir() else []
    return bool(links) and not any(link.exists() for link in links)
