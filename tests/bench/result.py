"""The header of every bench's JSON: the subject, the machine, the time and the duration."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from tuner import installed
from tuner.cli.output import lines


def header(seed: int | None = None) -> dict[str, Any]:
    """Return the header, under `measured`: `seconds` since the bench's start, and its seed if any."""
    about = {
        "version": installed.version(),
        "commit": commit(),
        "machine": machine(),
        "seed": seed,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - psutil.Process().create_time(), 3),
    }
    return {"measured": about}


def print_list(screen: Console, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list with every value in full; `>` before a column's name aligns it to the right."""
    for line in lines(names, rows):
        screen.print(line, soft_wrap=True)


def commit() -> str:
    """Return the commit that runs, with `-dirty` only if files other than pages differ from it.

    A bench writes its figures into a page, and the next one of the same queue measures the same code.
    """
    name = installed.commit()
    return name if changed(Path(__file__).parents[2]) else name.removesuffix("-dirty")


def changed(top: Path) -> bool:
    """Return whether tracked files other than pages differ from the commit of a checkout."""
    command = ["git", "-C", str(top), "diff", "--quiet", "HEAD", "--", ".", ":!docs", ":!*.md"]
    return subprocess.run(command, check=False, timeout=60).returncode != 0


def machine(root: Path = Path("/")) -> str:
    """Return the processor's name, and the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    match = re.search(r"^model name\s*: (.*)$", (root / "proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{cores} cores of {match[1].strip() if match else platform.machine()}"
