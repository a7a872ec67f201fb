"""`python -m tests.bench federated FILE`: compare, and write what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.federated.compare import Bench, FederationComparison
from tests.bench.federated.intervals import IntervalComparison, compare_intervals
from tests.bench.federated.judge import verdict
from tests.bench.federated.plot import draw
from tests.bench.federated.setups import by_name, federations
from tests.bench.result import header
from tuner import files

PICTURED = {"digits, α = 0.1": "federated.png"}
"""The comparisons to draw, with the files of their pictures."""
STEPPED = ("digits, IID", "digits, α = 0.1")
"""The federations on which the steps between two averagings are also chosen."""


def federated(
    output: Annotated[Path, typer.Argument(help="The JSON file, written anew after each.")],
    cache: Annotated[Path, typer.Option(help="Kept trainings.")] = Path("build/federated"),
    plots: Annotated[Path | None, typer.Option(help="A folder for the pictures.")] = None,
    only: Annotated[str, typer.Option(help="A part of the titles to run.")] = "",
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="Other federations in place of the known: MODULE:FUNCTION."),
    ] = None,
    controls: Annotated[bool, typer.Option(help="Also with other radio and idle power.")] = False,
    rivals: Annotated[bool, typer.Option(help="Also plain BO and random settings.")] = False,
) -> None:
    """Compare policies on federations, all or those whose title contains a text."""
    setups = {r: by_name(r) for r in recipe} if recipe else federations(controls)
    comparisons: list[FederationComparison] = []
    stepped: list[IntervalComparison] = []
    with Bench(cache, os.cpu_count() or 1, _report) as bench:
        for title, setup in setups.items():
            if only not in title:
                continue
            comparisons.append(bench.compare(title, setup, rivals))
            if title in STEPPED:
                stepped.append(compare_intervals(bench, title, setup))
            _write(output, comparisons, stepped)
            if plots and title in PICTURED:
                draw(plots / PICTURED[title], asdict(comparisons[-1]))
    _report(output.read_text(encoding="utf-8").rpartition('"judged": ')[2])


def _write(
    output: Path, comparisons: list[FederationComparison], stepped: list[IntervalComparison]
) -> None:
    """Write all results so far, the judgement last."""
    judged = verdict(
        [one for comparison in comparisons for one in comparison.judged],
        [(one.ratio, one.kept) for one in stepped],
    )
    written = {
        **header(),
        "federations": [asdict(one) for one in comparisons],
        "intervals": [asdict(one) for one in stepped],
        "judged": asdict(judged),
    }
    files.write(output, json.dumps(written, indent=1, ensure_ascii=False))


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
