"""`jouletune packrat plan`: plan instances, threads and batches from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from tuner.cli.options import AsJson
from tuner.cli.output import console, echo_json, print_list
from tuner.core import ConfigError
from tuner.presentation.figures import amount, figure, percent
from tuner.profiling.packrat.plans import PlannedBatch, PlanRequest, plan_batch
from tuner.profiling.packrat.plot import draw
from tuner.profiling.packrat.profiles import read_profile


def plan(
    profile: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV with the columns model, threads, batch_size, latency_s."
        ),
    ],
    threads: Annotated[int, typer.Option(metavar="T", help="Threads to divide.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Items to divide.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="The model in the file.", show_default=False)
    ] = "",
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
            show_default=False,
        ),
    ] = "",
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Memory of all instances, like 16GiB; needs the column memory_bytes.",
            show_default=False,
        ),
    ] = "",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw latency against batch size.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan the number of instances, and the threads and items of each, that serve a batch best.

    Uses a table of measured latencies, so it also works for another machine. A fat instance has all
    threads and the whole batch.
    """
    request = PlanRequest(read_profile(profile, model), threads, batch, _bytes(memory))
    planned = plan_batch(request, objective, constraint)
    if plot is not None:
        draw(plot, request)
    if as_json:
        echo_json(planned)
    else:
        _show_plan(planned)


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


def _show_plan(planned: PlannedBatch) -> None:
    """Print the plan as a table, its predicted gains, and notes."""
    out = console()
    rows = [*_plan_rows(planned)]
    about = f"{planned.model}: batch of {planned.batch} on {planned.threads} threads"
    about = f"{about}, best {planned.objective}"
    out.print(about, style="bold", soft_wrap=True)
    print_list(out, ("instances", "threads of each", ">items of each", ">expected"), rows)
    fat = "not profiled" if planned.fat_latency_s is None else amount("s", planned.fat_latency_s)
    lines = [
        f"batch     done in {amount('s', planned.predicted_latency_s)}; single instance:  {fat}",
        f"rate      {figure('throughput_per_s', planned.throughput_per_s)}, batch after batch",
    ]
    if planned.speedup is not None:
        doubt = f" ± {planned.speedup_stderr:.2f}" if planned.speedup_stderr else ""
        lines.append(f"speed-up  {planned.speedup:.2f}{doubt} × the single instance")
    if planned.energy_j is not None:
        lines.append(f"energy    {figure('energy_j', planned.energy_j)} per item")
    if planned.interference_percent > 0.0 or planned.interference_error_percent is not None:
        error = planned.interference_error_percent
        checked = f"; median error on held-out plans {percent(error / 100)}" if error else ""
        lines.append(
            f"parallel  up to {percent(planned.interference_percent / 100)} slower than alone, "
            f"from the rows of several instances{checked}"
        )
    lines += [f"note      {note}" for note in planned.notes]
    for line in lines:
        out.print(f"  {line}", soft_wrap=True)


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
