"""`jouletune packrat measure` of four published models: `python -m tests.engines.packrat --json`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tests.bench.result import header
from tests.engines.models import models as models_of
from tuner.cli.answers import show
from tuner.cli.options import AsJson
from tuner.cli.planning.packrat import cores_of, measured, measurements, sizes
from tuner.profiling.packrat.measure import Windows


def main(
    models: Annotated[str, typer.Option(metavar="A,B,…")] = "resnet50,mobilenet,bert,gpt2",
    batches: Annotated[str, typer.Option(metavar="A,B,…")] = "1,2,4,8,16",
    threads: Annotated[int, typer.Option(metavar="T", help="0: all that this process may.")] = 0,
    windows: Annotated[int, typer.Option(metavar="N", min=2)] = 5,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.05)] = 1.0,
    most_foreign: Annotated[float, typer.Option(metavar="SHARE", min=0.0)] = 0.05,
    seed: Annotated[int, typer.Option(metavar="N")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE.csv")] = None,
    as_json: AsJson = False,
) -> None:
    """Profile models, plan for every batch size, and measure the plan, as the product's command does."""
    limits = Windows(windows, window_s, most_foreign)
    results = measured(models_of(models), sizes(batches), cores_of(threads), limits, seed)
    show(measurements(results, out, **header(seed)), "json" if as_json else "table")


if __name__ == "__main__":
    typer.run(main)
