"""The archive of `jouletune doctor --bundle`: the kernel's small text files from which devices are read.

The unpacked archive is a filesystem root with the links and modes of the machine. Device drivers and
the doctor read it like the host's own root, so a bundle from an operator's machine becomes a fixture.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tuner.core import StoreError

PATTERNS = (
    "etc/nv_tegra_release",
    "etc/nvpmodel.conf",
    "var/lib/nvpmodel/status",
    "proc/cpuinfo",
    "proc/stat",
    "proc/device-tree/model",
    "proc/device-tree/compatible",
    "proc/sys/kernel/osrelease",
    "sys/bus/i2c/devices/*/name",
    "sys/bus/i2c/devices/*/hwmon/hwmon*/*",
    "sys/bus/i2c/devices/*/iio:device*/*",
    "sys/class/devfreq/*/*",
    "sys/class/hwmon/hwmon*/*",
    "sys/class/powercap/*",
    "sys/class/powercap/*/*",
    "sys/class/thermal/cooling_device*/*",
    "sys/class/thermal/thermal_zone*/*",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/hypervisor/type",
    "sys/devices/cpu_[al]*/cpus",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu*/online",
    "sys/devices/system/cpu/cpu*/cpu_capacity",
    "sys/devices/system/cpu/cpu*/thermal_throttle/*",
    "sys/devices/system/cpu/amd_pstate/*",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpufreq/policy*/*",
    "sys/devices/system/cpu/intel_pstate/*",
    "sys/devices/system/cpu/intel_uncore_frequency/*/*",
    "sys/kernel/debug/bpmp/debug/clk/emc/*",
    "sys/kernel/debug/bpmp/debug/emc/possible_rates",
    "sys/kernel/nvpmodel_emc_cap/*",
    "sys/class/hwmon/hwmon*/device/power1_[ao]*",
    *(
        f"sys/bus/pci/drivers/{driver}/*:*/{files}"
        for driver in ("amdgpu", "xe", "i915")
        for files in (
            "device",
            "class",
            "p*_dpm_*",
            "pp_od_clk_voltage",
            "gpu_metrics",
            "current_compute_partition",
            "sriov_numvfs",
            "hwmon/hwmon*/*",
            "drm/card*/gt/gt*/*",
            "tile*/gt*/freq0/*",
            "power/runtime_suspended_time",
        )
    ),
)
MOST_BYTES = 64 * 1024
MOST_LINKS = 40
"""The kernel follows at most 40 links in one path, too."""
AS_IT_IS = "surrogateescape"
"""AMD's gpu_metrics are no text."""
ABOUT = "jouletune-bundle.json"
"""Lists the mode of each file, because unpacking changes modes, and the files that could not be read."""
SCRUBBED = (
    (re.compile(r"(?i)(serial[^\n:]*:\s*)\S+"), r"\1removed"),
    (re.compile(r"(?i)\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b"), "00:00:00:00:00:00"),
)
"""Patterns of data that identify a machine, with their placeholders. `scrubbed` removes the host name."""


@dataclass
class Texts:
    """The texts, link targets and modes of a machine's files, and the reason for each unread file."""

    texts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def texts(root: Path) -> Texts:
    """Return the scrubbed text of every readable file, by its path relative to the root."""
    gathered, host = Texts(), platform.node()
    for path in matched(root):
        real, links = followed(root, str(path.relative_to(root)))
        gathered.links |= links
        file = root / real
        try:
            if real in gathered.texts or not file.is_file():
                continue
            gathered.modes[real] = stat.S_IMODE(file.stat().st_mode)
            text = file.read_bytes()[:MOST_BYTES].decode(errors=AS_IT_IS)
            gathered.texts[real] = scrubbed(text, host)
        except OSError as error:  # only root may read it, or it was removed meanwhile
            gathered.unread[real] = error.strerror or type(error).__name__
    return gathered


def matched(root: Path) -> Iterator[Path]:
    """Yield the paths that match the patterns, including links whose target lies outside the root."""
    for pattern in PATTERNS:
        if "*" in pattern:
            yield from sorted(root.glob(pattern))
        elif os.path.lexists(root / pattern):
            yield root / pattern


def followed(root: Path, path: str) -> tuple[str, dict[str, str]]:
    """Return the real path of `path`, and the links that were followed to it.

    All paths are relative to the root; an absolute link target starts at the root. Each link's target
    is returned relative to the link's folder.
    """
    ahead, behind, links = path.split("/"), list[str](), dict[str, str]()
    while ahead:
        part = ahead.pop(0)
        here = "/".join([*behind, part])
        if part == "..":
            behind = behind[:-1]
        elif (root / here).is_symlink() and here not in links and len(links) < MOST_LINKS:
            target = str((root / here).readlink())
            folder = "/".join(behind)
            behind = [] if target.startswith("/") else behind
            links[here] = os.path.relpath(f"/{'/'.join(behind)}/{target}", f"/{folder}")
            ahead = [*target.strip("/").split("/"), *ahead]
        else:
            behind.append(part)
    return "/".join(behind), links


def scrubbed(text: str, host: str) -> str:
    """Replace serial numbers, hardware addresses and the host's name in a text by placeholders."""
    for pattern, instead in SCRUBBED:
        text = pattern.sub(instead, text)
    return re.sub(rf"\b{re.escape(host)}\b", "host", text) if host else text


def write_bundle(root: Path, to: Path) -> int:
    """Write the texts of the machine at `root` as a tar.gz file; return the number of texts.

    Raises:
        StoreError: the file cannot be written.
    """
    gathered = texts(root)
    try:
        with tarfile.open(to, "w:gz") as bundle:
            for entry, text in _entries(gathered):
                content = text.encode(errors=AS_IT_IS)
                entry.size = len(content)
                bundle.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise StoreError(
            f"cannot write {to}: {error.strerror}",
            hint="give a file in a folder that you can write",
        ) from error
    return len(gathered.texts)


def _entries(gathered: Texts) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Yield the archive entries of a bundle: its links, its files, and the list of modes."""
    for path, target in gathered.links.items():
        link = tarfile.TarInfo(path)
        link.type, link.linkname = tarfile.SYMTYPE, target
        yield link, ""
    for path, text in gathered.texts.items():
        entry = tarfile.TarInfo(path)
        entry.mode = gathered.modes[path]
        yield entry, text
    modes = {path: f"{mode:04o}" for path, mode in gathered.modes.items()}
    yield tarfile.TarInfo(ABOUT), json.dumps({"modes": modes, "unread": gathered.unread}, indent=1)
