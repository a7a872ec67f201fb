"""The header of every bench's JSON: the subject, the machine, the time and the duration."""

from __future__ import annotations

import os
import platform
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tuner import release


def header(seed: int | None = None) -> dict[str, Any]:
    """Return the header, under `measured`: `seconds` since the bench's start, and its seed if any."""
    about = {
        "version": release.version(),
        "commit": release.commit(),
        "machine": machine(),
        "seed": seed,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - psutil.Process().create_time(), 3),
    }
    return {"measured": about}


def machine(root: Path = Path("/")) -> str:
    """Return the processor's name, and the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    match = re.search(r"^model name\s*: (.*)$", (root / "proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{cores} cores of {match[1].strip() if match else platform.machine()}"
