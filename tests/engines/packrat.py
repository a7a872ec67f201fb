"""Several thin instances against a fat one, for published models: `python -m tests.engines.packrat`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from agents.workloads.reference.catalogue import Model
from tests.bench.result import header
from tests.engines.models import models as models_of
from tests.engines.packings import ModelResult, Windows, measure_model, summary
from tuner.cli.output import console, echo_json


def main(
    models: Annotated[str, typer.Option(metavar="A,B,…")] = "resnet50,mobilenet,bert,gpt2",
    batches: Annotated[str, typer.Option(metavar="A,B,…")] = "1,2,4,8,16",
    windows: Annotated[int, typer.Option(metavar="N", min=2)] = 5,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.05)] = 1.0,
    most_foreign: Annotated[float, typer.Option(metavar="SHARE", min=0.0)] = 0.05,
    seed: Annotated[int, typer.Option(metavar="N")] = 0,
) -> None:
    """Profile models, plan for every batch size, and measure the plan; print the result as JSON.

    A plan is chosen only if it is confirmed against the fat instance (all threads, the whole batch);
    then both are measured once more, in turns. Windows with foreign load are discarded and repeated.
    """
    limits = Windows(windows, window_s, most_foreign)
    sizes = tuple(sorted({int(text) for text in batches.split(",")}))
    cores = sorted(os.sched_getaffinity(0))
    results = measured(models_of(models), sizes, cores, limits, seed)
    echo_json({**header(seed), **summary(results)})


def measured(
    models: Sequence[Model],
    batches: tuple[int, ...],
    cores: Sequence[int],
    windows: Windows,
    seed: int,
) -> list[ModelResult]:
    """Return the measurements of every model, with a progress bar for each. Raises ActuationError."""
    results = []
    with Progress(console=console(stderr=True), transient=True) as progress:
        for model in models:
            task = progress.add_task(model.name, total=None)

            def step(activity: str, total: int, task: TaskID = task) -> None:
                progress.update(task, description=activity, total=total, advance=1)

            results.append(measure_model(model, batches, cores, windows, seed, step))
            progress.remove_task(task)
    return results


if __name__ == "__main__":
    typer.run(main)
