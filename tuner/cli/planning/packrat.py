"""`jouletune packrat measure`: profile a model on this machine, plan, and measure the plan."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from agents.workloads.reference.catalogue import REFERENCE, Model
from policies.packrat.packing import Group
from tuner.cli.answers import Answer, Rows, with_json
from tuner.cli.output import console, write_text
from tuner.core import ConfigError
from tuner.profiling.packrat.measure import (
    ModelResult,
    Windows,
    as_csv,
    measure_model,
    summary,
)


@with_json
def measure(
    batches: Annotated[str, typer.Option(metavar="A,B,…", help="Batch sizes.")] = "1,2,4,8,16",
    threads: Annotated[
        int, typer.Option(metavar="T", help="Cores to use; 0: all of this process.")
    ] = 0,
    windows: Annotated[
        int, typer.Option(metavar="N", min=2, help="Windows of each measurement.")
    ] = 5,
    window_s: Annotated[
        float, typer.Option(metavar="S", min=0.05, help="Seconds per window.")
    ] = 1.0,
    most_foreign: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0.0, help="Repeat windows with a larger foreign load."),
    ] = 0.05,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of weights and inputs.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Keep the profile, for `packrat plan --profile`."),
    ] = None,
) -> Answer:
    """Profile the reference model on this machine, plan for every batch size, and measure the plan.

    A plan is chosen only if it is confirmed against the fat instance (all threads, the whole batch);
    then both are measured once more, in turns. Windows with foreign load are discarded and repeated.
    """
    limits = Windows(windows, window_s, most_foreign)
    results = measured([REFERENCE], sizes(batches), cores_of(threads), limits, seed)
    return measurements(results, out)


def measurements(results: Sequence[ModelResult], out: Path | None, **about: object) -> Answer:
    """Write the requested profile, and return the results; the JSON also has `about`. Raises StoreError."""
    if out is not None:
        write_text(out, as_csv(results), "--out", 0o666)
    rows = [row for result in results for row in _result_rows(result)]
    heads = ("model", ">batch", "chosen", ">fat takes", ">chosen takes", ">predicted", ">speed-up")
    lines = (f"  {line}" for line in _summed(results))
    return Answer({**about, **summary(results)}, [Rows(heads, rows, ""), *lines])


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


def sizes(batches: str) -> tuple[int, ...]:
    """Return the batch sizes, ascending. Raises ConfigError unless all are integers >= 1."""
    try:
        sizes = {int(text) for text in batches.split(",")}
    except ValueError:
        sizes = {0}
    if min(sizes) < 1:
        raise ConfigError(
            f"--batches cannot be {batches!r}", hint="write integers >= 1, like 1,2,4"
        )
    return tuple(sorted(sizes))


def cores_of(threads: int) -> list[int]:
    """Return the cores to use; for 0 all that this process may use. Raises ConfigError."""
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise ConfigError(
            f"--threads is {threads}, but this process can use {len(cores)} cores",
            hint=f"give at most {len(cores)}",
        )
    return cores[: threads or len(cores)]


def _summed(results: Sequence[ModelResult]) -> Iterator[str]:
    """Yield the speed-up over all batch sizes, the prediction errors and the disturbed windows."""
    comparisons = [c for result in results for c in result.comparisons]
    speedups = [c.speedup for c in comparisons]
    slower = sum(c.is_slower for c in comparisons)
    yield (
        f"speed-up  mean {statistics.fmean(speedups):.2f}, at most {max(speedups):.2f}; "
        f"{slower or 'none'} of {len(comparisons)} slower than the single instance beyond noise"
    )
    errors = [100.0 * e for result in results for e in result.prediction_errors]
    if errors:
        yield (
            f"predicted  median error {statistics.median(map(abs, errors)):.1f} % of the {len(errors)} "
            f"chosen plans, from {min(errors):+.1f} to "
            f"{max(errors):+.1f} %; their own windows were held out"
        )
    for result in results:
        yield from _doubts(result)


def _result_rows(result: ModelResult) -> Iterator[tuple[str, ...]]:
    for c in result.comparisons:
        yield (
            result.model,
            str(c.batch),
            "the single instance" if c.is_fat else _named(c.plan),
            f"{1000.0 * c.fat_latency_s:.1f} ± {1000.0 * c.fat_stderr_s:.1f} ms",
            "–" if c.is_fat else f"{1000.0 * c.latency_s:.1f} ± {1000.0 * c.stderr_s:.1f} ms",
            "–" if c.is_fat else f"{1000.0 * c.predicted_latency_s:.1f} ms",
            "1" if c.is_fat else f"{c.speedup:.2f} ± {c.speedup_stderr:.2f}",
        )


def _doubts(result: ModelResult) -> Iterator[str]:
    """Yield the number of profiled points and disturbed windows, and the packings not confirmed."""
    bench = result.bench
    yield (
        f"{result.model:<9} {len(bench.points)} of {len(bench.cells)} points profiled; "
        f"{bench.timed.rejected} windows discarded for foreign load, "
        f"{bench.timed.disturbed} kept despite it (worst {bench.timed.worst:.0%})"
    )
    for c in result.comparisons:
        if c.confirming is not None and not c.confirming.is_proven:
            yield (
                f"{result.model:<9} batch {c.batch}: {_named(c.candidate)} measured "
                f"{c.confirming.speedup:.3f} ± "
                f"{c.confirming.stderr:.3f} × as fast as the single instance, which is kept"
            )


def _named(plan: Sequence[Group]) -> str:
    """Return a plan as text, like `2×⟨4,8⟩`: instances, threads and items of each."""
    return " + ".join(f"{g.instances}×⟨{g.threads},{g.batch}⟩" for g in plan)
