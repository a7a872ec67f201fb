"""Tune the examples on this machine: `python -m tests.plugins.bench [NAME…] --output FILE.json`.

Results of other examples stay in the file, so that each example can be measured while the machine is idle.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.bench.result import header
from tests.plugins.servers import SERVERS, Running
from tests.plugins.studies import jouletune, studied

TERMS = MappingProxyType(
    {
        "fastapi": ("--trials", "4", "--window", "5"),
        "nginx": ("--trials", "4", "--window", "5"),
        "postgresql": ("--trials", "8"),
        "redis": ("--trials", "3"),
        "training": ("--trials", "4"),
        "ffmpeg": ("--trials", "9"),
    }
)
"""The trials and windows of each study: it takes a few minutes."""


@contextmanager
def started(name: str) -> Iterator[Running]:
    """Start an example in a folder that its user can reach. Skips an example that is not installed."""
    with tempfile.TemporaryDirectory(prefix="jouletune-plugin-") as kept:
        Path(kept).chmod(0o755)
        folder = Path(kept) / name
        folder.mkdir()
        with SERVERS[name](folder) as running:
            yield running


def tuned(running: Running, name: str, foreign_share: float) -> dict[str, Any]:
    """Check an example's file, run its study, and return its row for the page of figures."""
    folder = running.file.parent
    checked = jouletune(running, folder, "workload", "check", str(running.file), "--window", "3")
    assert checked.returncode == 0, f"{name}: {checked.stdout}{checked.stderr}"
    more = (*TERMS[name], "--foreign-share", str(foreign_share))
    result = studied(running, folder, *more)
    foreign = [t.get("foreign") or 0.0 for t in result["trials"] if t["state"] == "completed"]
    saving, study = result["saving"] or {}, result["study"]
    about = {key: study[key] for key in ("objective", "constraints", "limits")}
    keys = ("won", "alternating", "limit_kept", "baseline", "best")
    return {
        "title": running.title,
        "foreign_most": max(foreign),
        "foreign_share": foreign_share,
        "trials": len(result["trials"]),
        "saving_percent": 100.0 * saving["mean"] if saving else None,
        "saving_stderr_percent": 100.0 * saving["stderr"] if saving else None,
        "study": {**about, "why": result["why"]},
        "violations": study["violations"]["broken"],
        **{key: result[key] for key in keys},
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("names", nargs="*", choices=[[], *SERVERS], default=[])
    words.add_argument("--output", type=Path, required=True)
    words.add_argument("--foreign-share", type=float, default=0.3)
    given = words.parse_args()
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    for name in given.names or list(SERVERS):
        try:
            with started(name) as running:
                results[name] = tuned(running, name, given.foreign_share)
        except pytest.skip.Exception as skipped:
            sys.stdout.write(f"{name}: skipped, {skipped}\n")
            continue
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({**results, **header()}, indent=2) + "\n")
        sys.stdout.write(f"{name}: {results[name]['study']['why']}\n")


if __name__ == "__main__":
    main()
