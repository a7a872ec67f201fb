"""`python -m tests.bench federated FILE`: compare, and write what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.bench.federated.compare import Bench, federations
from tests.bench.federated.plot import draw
from tuner import files

PICTURED = {"digits, α = 0.1": "federated.png"}
"""Which comparison is drawn, into which file."""


def federated(
    output: Annotated[Path, typer.Argument(help="The JSON file, written anew after each.")],
    cache: Annotated[Path, typer.Option(help="Kept trainings.")] = Path("build/federated"),
    plots: Annotated[Path | None, typer.Option(help="A folder for the pictures.")] = None,
    only: Annotated[str, typer.Option(help="A part of the titles to run.")] = "",
) -> None:
    """Compare policies on federations, all or those whose title contains a text."""
    bench = Bench(cache, os.cpu_count() or 1, _report)
    found: list[dict[str, Any]] = []
    for title, federation in federations().items():
        if only not in title:
            continue
        found.append(asdict(bench.compare(title, federation)))
        files.write(output, json.dumps({"federations": found}, indent=1))
        if plots and title in PICTURED:
            draw(plots / PICTURED[title], found[-1])


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
