"""The kernel's data on this host's processors: their busy time and their name.

Source: proc(5) for /proc/stat and /proc/cpuinfo.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuner.core import MeasurementError

COUNTED = ("user", "nice", "system", "irq", "softirq")
"""The times that count as work. `user` includes guests; `iowait` and `idle` are not work; `steal` is the
time of other machines."""
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq")


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


def text_of(path: Path) -> str:
    """Return a file's text, with `�` for invalid UTF-8; empty if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
