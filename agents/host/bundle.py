"""What `jouletune doctor --bundle` takes along: the kernel's small texts that devices are read from.

Unpacked, it is a root that devices and the doctor read as they read the host's own; so a report of a
machine that nobody here has becomes a fixture.
"""

from __future__ import annotations

import io
import platform
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tuner.core import StoreError

PATTERNS = (
    "etc/nv_tegra_release",
    "etc/nvpmodel.conf",
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
    "sys/class/powercap/*/*",
    "sys/class/thermal/cooling_device*/*",
    "sys/class/thermal/thermal_zone*/*",
    "sys/devices/system/cpu/cpu*/thermal_throttle/*",
    "sys/devices/system/cpu/cpufreq/policy*/*",
    "sys/devices/system/cpu/intel_pstate/*",
    "sys/devices/system/cpu/intel_uncore_frequency/*/*",
    "sys/kernel/debug/bpmp/debug/clk/emc/*",
    "sys/kernel/debug/bpmp/debug/emc/possible_rates",
    "sys/kernel/nvpmodel_emc_cap/*",
)
MOST_BYTES = 64 * 1024
SCRUBBED = (
    (re.compile(r"(?i)(serial[^\n:]*:\s*)\S+"), r"\1removed"),
    (re.compile(r"(?i)\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b"), "00:00:00:00:00:00"),
)
"""What tells one machine from another, and what stands in its place; the host's name goes, too."""


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the path, from the root, and the scrubbed text of every file that can be read."""
    host = platform.node()
    for pattern in PATTERNS:
        for file in sorted(root.glob(pattern)):
            try:
                text = file.read_bytes()[:MOST_BYTES].decode() if file.is_file() else None
            except (OSError, ValueError):  # root's own, gone again, or no text
                continue
            if text is not None:
                yield str(file.relative_to(root)), scrubbed(text, host)


def scrubbed(text: str, host: str) -> str:
    """Return a text without serial numbers, hardware addresses and the host's name."""
    for pattern, instead in SCRUBBED:
        text = pattern.sub(instead, text)
    return re.sub(rf"\b{re.escape(host)}\b", "host", text) if host else text


def write_bundle(root: Path, to: Path) -> int:
    """Write the texts of the machine at `root` as a tar.gz; return how many there are.

    Raises:
        StoreError: it cannot be written.
    """
    count = 0
    try:
        with tarfile.open(to, "w:gz") as bundle:
            for path, text in texts(root):
                entry = tarfile.TarInfo(path)
                entry.size = len(text.encode())
                bundle.addfile(entry, io.BytesIO(text.encode()))
                count += 1
    except OSError as error:
        raise StoreError(
            f"cannot write {to}: {error.strerror}", hint="name a file in a folder of yours"
        ) from error
    return count
