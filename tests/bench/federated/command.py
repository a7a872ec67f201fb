"""`python -m tests.bench federated FILE`: compare, and write what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.federated.compare import OBJECTIVES, RIVALS, Bench, FederationComparison
from tests.bench.federated.judge import MOST, MOST_STEPS, Group, group
from tests.bench.federated.plot import draw
from tests.bench.federated.recipes import federations
from tests.bench.federated.setups import by_name
from tests.bench.result import header
from tuner import files

PICTURED = {"cars and phones": "federated.png"}
"""The comparisons to draw, with the files of their pictures."""
SURE = 0.9


def federated(
    output: Annotated[Path, typer.Argument(help="The JSON file, written anew after each.")],
    cache: Annotated[Path, typer.Option(help="Kept trainings.")] = Path("build/federated"),
    plots: Annotated[Path | None, typer.Option(help="A folder for the pictures.")] = None,
    only: Annotated[str, typer.Option(help="A part of the titles to run.")] = "",
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="Other federations in place of the known: MODULE:FUNCTION."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each.")] = 5,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one per core.")] = 0,
    rivals: Annotated[bool, typer.Option(help="Also plain BO and random settings.")] = False,
) -> None:
    """Compare policies on federations, all or those whose title contains a text."""
    setups = {r: by_name(r) for r in recipe} if recipe else federations()
    comparisons: list[FederationComparison] = []
    with Bench(cache, jobs or os.cpu_count() or 1, seeds, _report) as bench:
        for title, setup in setups.items():
            if only not in title:
                continue
            comparisons.append(bench.compare(title, setup, RIVALS if rivals else ()))
            _write(output, comparisons)
            if plots and title in PICTURED:
                draw(plots / PICTURED[title], asdict(comparisons[-1]))
    _report(output.read_text(encoding="utf-8").rpartition('"groups": ')[2])


def _write(output: Path, comparisons: list[FederationComparison]) -> None:
    """Write all results so far, the judgement last."""
    forecasts = [one for comparison in comparisons for one in comparison.forecasts]
    sure = [f.reached for f in forecasts if f.chance is not None and f.chance >= SURE]
    written = {
        **header(),
        "federations": [asdict(one) for one in comparisons],
        "sure": len(sure),
        "sure_and_reached": sum(sure),
        "hopeless": sum(f.hopeless is not None for f in forecasts),
        "hopeless_and_reached": sum(f.hopeless is not None and f.reached for f in forecasts),
        "missed": sum(not f.reached for f in forecasts),
        "groups": [asdict(one) for one in _groups(comparisons)],
    }
    files.write(output, json.dumps(written, indent=1, ensure_ascii=False))


def _groups(comparisons: list[FederationComparison]) -> list[Group]:
    """Return the judgement by kind of federations and objective, the judging ones apart."""
    kinds = {
        "all": [c for c in comparisons if not c.steps],
        "left out": [c for c in comparisons if c.judges and not c.steps],
        "unlike classes": [c for c in comparisons if c.unlike],
        "steps": [c for c in comparisons if c.steps],
    }
    return [
        group(
            kind,
            metric,
            [j for c in own for j in c.judged if j.objective == metric and j.possible],
            MOST_STEPS if kind == "steps" else MOST[metric],
        )
        for kind, own in kinds.items()
        for metric in OBJECTIVES
        if any(j.possible and j.objective == metric for c in own for j in c.judged)
    ]


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
