"""`jouletune packrat plan`: plan instances, threads and batches from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from tuner.cli.answers import Answer, Rows, with_json
from tuner.core import ConfigError
from tuner.presentation.figures import amount, figure, percent
from tuner.profiling.packrat.plans import PlannedBatch, PlanRequest, plan_batch
from tuner.profiling.packrat.profiles import read_profile


@with_json
def plan(
    profile: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV with the columns model, threads, batch_size, latency_s."
        ),
    ],
    threads: Annotated[int, typer.Option(metavar="T", help="Threads to divide.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Items to divide.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model in the file.")] = "",
    objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="latency_s of the batch, throughput_per_s with at most B items at a time, "
            "or energy_j per item.",
        ),
    ] = "latency_s",
    constraint: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help='Like "latency_s <= 0.05"; the baseline of "<= 1.2x baseline" is a single instance.',
        ),
    ] = "",
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Memory of all instances, like 16GiB; needs the column memory_bytes.",
        ),
    ] = "",
) -> Answer:
    """Plan the number of instances, and the threads and items of each, that serve a batch best.

    Uses a table of measured latencies, so it also works for another machine. A fat instance has all
    threads and the whole batch.
    """
    request = PlanRequest(read_profile(profile, model), threads, batch, _bytes(memory))
    planned = plan_batch(request, objective, constraint)
    about = (
        f"{planned.model}: batch of {planned.batch} on {planned.threads} threads, best {objective}"
    )
    columns = ("instances", "threads of each", ">items of each", ">expected")
    table = Rows(columns, _plan_rows(planned), "")
    return Answer(planned, [about, table, *(f"  {line}" for line in _remarks(planned))])


def _bytes(memory: str) -> float:
    """Return a size in bytes, infinite for an empty text. Raises ConfigError."""
    if not memory:
        return float("inf")
    try:
        return float(TypeAdapter(ByteSize).validate_python(memory))
    except ValidationError:
        raise ConfigError(
            f"--memory cannot be {memory!r}", hint="write it like 16GiB or 500MB"
        ) from None


def _remarks(planned: PlannedBatch) -> Iterator[str]:
    """Yield the predicted gains of a plan, and notes."""
    fat = "not profiled" if planned.fat_latency_s is None else amount("s", planned.fat_latency_s)
    yield f"batch     done in {amount('s', planned.predicted_latency_s)}; single instance:  {fat}"
    yield f"rate      {figure('throughput_per_s', planned.throughput_per_s)}, batch after batch"
    if planned.speedup is not None:
        doubt = f" ± {planned.speedup_stderr:.2f}" if planned.speedup_stderr else ""
        yield f"speed-up  {planned.speedup:.2f}{doubt} × the single instance"
    if planned.energy_j is not None:
        yield f"energy    {figure('energy_j', planned.energy_j)} per item"
    if planned.interference_percent > 0.0 or planned.interference_error_percent is not None:
        error = planned.interference_error_percent
        checked = f"; median error on held-out plans {percent(error / 100)}" if error else ""
        yield (
            f"parallel  up to {percent(planned.interference_percent / 100)} slower than alone, "
            f"from the rows of several instances{checked}"
        )
    yield from (f"note      {note}" for note in planned.notes)


def _plan_rows(planned: PlannedBatch) -> Iterator[tuple[str, str, str, str]]:
    """Yield one row per shape: instances, cores, items of each, and predicted time."""
    first, core = 1, 0
    for group, latency_s in zip(planned.plan, planned.plan_latency_s, strict=True):
        last, end = first + group.instances - 1, core + group.instances * group.threads - 1
        yield (
            _span(first, last),
            f"{group.threads} ({_core_span(core, end)})",
            str(group.batch),
            amount("s", latency_s),
        )
        first, core = last + 1, end + 1
    if planned.idle_threads:
        yield (
            "–",
            f"{planned.idle_threads} idle ({_core_span(core, planned.threads - 1)})",
            "–",
            "–",
        )


def _core_span(first: int, last: int) -> str:
    return f"core {first}" if first == last else f"cores {_span(first, last)}"


def _span(first: int, last: int) -> str:
    """Return a range of numbers as text."""
    return str(first) if first == last else f"{first}–{last}"
