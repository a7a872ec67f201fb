"""A command tuned by a real `jouletune run`, and the saving of its runs in turns."""

from __future__ import annotations

import json
import math
import os
import shlex
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.integration.stage import JOULETUNE
from tests.processes import run_to_end

TOP = Path(__file__).parents[2]
DEADLINE_S = 1800.0


def studied(
    title: str,
    command: Sequence[str],
    knobs: Mapping[str, Sequence[str]],
    options: Sequence[str],
    folder: Path,
) -> dict[str, Any]:
    """Return the result of `jouletune run --command`; the first value of each knob is the baseline."""
    given = [f"--knob={name}={','.join(values)}" for name, values in knobs.items()]
    names = {name: text for name, text in os.environ.items() if not name.startswith("JOULETUNE_")}
    done = run_to_end(
        [*JOULETUNE, "run", "--command", shlex.join(command), *given, *options, "--json"],
        cwd=folder,
        env={**names, "PYTHONPATH": str(TOP)},
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )
    if done.returncode:
        raise RuntimeError(f"{title}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def chosen(result: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that a study chose: the defaults if none won."""
    best = (result["best"] or {}).get("setting", {})
    return {**defaults, **{name: str(value) for name, value in best.items()}}


def saving(own: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Return the mean saving of runs in turns over the runs of a base beside them, with its error."""
    ratios = [1.0 - one / other for one, other in zip(own, base, strict=True)]
    return {
        "saving_percent": 100.0 * statistics.fmean(ratios),
        "saving_stderr_percent": 100.0 * statistics.stdev(ratios) / math.sqrt(len(ratios)),
    }
