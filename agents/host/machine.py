"""Detect the kind of machine from its files, because advice for one kind is wrong on another.

Sources: proc(5) for /proc/cpuinfo, where x86 guests have the flag `hypervisor` and Arm processors the
field `CPU implementer`; /sys/hypervisor, /sys/class/dmi/id and the device tree for other guests, as in
systemd-detect-virt(1). Podman and CRI-O create `.containerenv`, Docker `.dockerenv`, systemd
`run/systemd/container`, LXD `dev/lxd`; pods have Kubernetes' secrets. Container runtimes mask powercap:
podman pull requests 20501 and 20510, kubernetes/website 47229.
"""

from __future__ import annotations

import re
from pathlib import Path

from agents.host.processor import text_of

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


def masked(folder: Path) -> bool:
    """Return whether all links in a folder of /sys/class are broken, as under a container runtime."""
    links = list(folder.iterdir()) if folder.is_dir() else []
    return bool(links) and not any(link.exists() for link in links)
