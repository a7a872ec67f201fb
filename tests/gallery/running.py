"""Runs a program of the gallery in a process that has imported torch already: an import costs a second."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

DEADLINE_S = 300.0
PRELOADED = ("__main__", "torch", "torch.distributed", "torch.utils.checkpoint", "numpy")


def result_of(program: Path, words: Sequence[str]) -> dict[str, float]:
    """Return the result that a program prints. Raises RuntimeError: it failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with tempfile.NamedTemporaryFile("r") as printed:
        process = context.Process(target=_run, args=(str(program), list(words), printed.name))
        process.start()
        process.join(DEADLINE_S)
        text = printed.read()
    if process.exitcode:
        raise RuntimeError(f"{program.name} {' '.join(words)} ended with {process.exitcode}")
    result: dict[str, float] = json.loads(text.splitlines()[-1])
    return result


def _run(program: str, words: list[str], printed: str) -> None:
    os.dup2(os.open(printed, os.O_WRONLY), 1)  # its children print there, too
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")
