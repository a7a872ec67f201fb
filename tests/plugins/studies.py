"""Runs `jouletune` on a running example, with the commands of its page."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.stage import JOULETUNE
from tests.plugins.servers import Running
from tests.processes import run_to_end

TOP = Path(__file__).parents[2]
DEADLINE_S = 1500.0


def jouletune(running: Running, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside the example, isolated from the machine's own tuners."""
    names = {name: text for name, text in os.environ.items() if not name.startswith("JOULETUNE_")}
    return run_to_end(
        [*JOULETUNE, *words],
        cwd=folder,
        env={**names, "PYTHONPATH": str(TOP), **running.environment},
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )


def studied(running: Running, folder: Path, *more: str) -> dict[str, Any]:
    """Run the page's study, with more options after its own, and return its result."""
    done = jouletune(running, folder, "run", *running.options, *more, "--json")
    assert done.returncode == 0, f"{running.title}: {done.stderr[-4000:]}"
    result: dict[str, Any] = json.loads(done.stdout)
    return result
