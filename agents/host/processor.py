"""What the kernel reports about this host's processors: how long they have worked, and what they are.

Source: proc(5) for /proc/stat and /proc/cpuinfo.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuner.core import MeasurementError

COUNTED = ("user", "nice", "system", "irq", "softirq")
"""Guests are within user; iowait and idle are not work; stolen time is another machine's."""
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq")


def busy_seconds(stat: str) -> float:
    """Return the CPU seconds that all CPUs together have worked since the boot.

    Raises:
        MeasurementError: the text is not that of /proc/stat.
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
    """Return the CPU's name as the kernel reports it; ARM kernels tell none."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else "unknown CPU"


def required_text(path: Path) -> str:
    """Return a file's text, what is none in it as `�`. Raises MeasurementError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(f"cannot read {path}: {error.strerror}") from error


def text_of(path: Path) -> str:
    """Return a file's text, nothing where it cannot be read, what is no text in it as `�`."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
