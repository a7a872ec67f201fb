"""`jouletune packrat plan`: the best instances, threads and batches, on paper, from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import packrat_measure
from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tuner.cli.plans import Planned

commands = typer.Typer(help="Plan instances, threads and batches from a measured profile.")


@commands.callback()
def nouns() -> None:
    """Plan instances, threads and batches from a measured profile, or measure them here."""


commands.command()(packrat_measure.measure)


@commands.command()
def plan(
    profile: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV with the columns model, threads, batch_size, latency_s."
        ),
    ],
    threads: Annotated[int, typer.Option(metavar="T", help="Threads to share out.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Items to share out.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Which of the file's models.", show_default=False)
    ] = "",
    mixed: Annotated[
        bool, typer.Option("--mixed/--uniform", help="Instances may differ, or are all alike.")
    ] = True,
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
            help='Like "latency_s <= 0.05"; the baseline of "<= 1.2x baseline" is the fat instance.',
            show_default=False,
        ),
    ] = "",
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="What all instances may take, like 16GiB; needs the column memory_bytes.",
            show_default=False,
        ),
    ] = "",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw latency against batch size.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find how many instances, with how many threads and items each, serve a batch best.

    From a table of measured latencies, so also for a machine that is not at hand. A fat instance is
    one with all the threads and the whole batch.
    """
    from tuner.cli.output import echo_json
    from tuner.cli.plans import Asked, planned
    from tuner.cli.profiles import read_profile

    asked = Asked(read_profile(profile, model), threads, batch, mixed, _bytes(memory))
    found = planned(asked, objective, constraint)
    if plot is not None:
        from tuner.cli.packrat_plot import draw

        draw(plot, asked)
    if as_json:
        echo_json(found)
    else:
        _show(found)


def _bytes(memory: str) -> float:
    """Return a size in bytes, infinite for none. Raises ConfigError."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from tuner.core import ConfigError

    if not memory:
        return float("inf")
    try:
        return float(TypeAdapter(ByteSize).validate_python(memory))
    except ValidationError:
        raise ConfigError(
            f"--memory cannot be {memory!r}", hint="write it like 16GiB or 500MB"
        ) from None


def _show(found: Planned) -> None:
    """Print the plan as a table, what it gains, and what to mind."""
    from tuner.cli.figures import amount, figure, percent
    from tuner.cli.output import console, table

    out = console()
    rows = [*_rows(found)]
    about = (
        f"{found.model}: batch of {found.batch} on {found.threads} threads, best {found.objective}"
    )
    out.print(about, style="bold", soft_wrap=True)
    out.print(table("instances", "threads of each", ">items of each", ">expected", rows=rows))
    fat = "not profiled" if found.fat_latency_s is None else amount("s", found.fat_latency_s)
    lines = [
        f"batch     done in {amount('s', found.predicted_latency_s)}; one fat instance: {fat}",
        f"rate      {figure('throughput_per_s', found.throughput_per_s)}, batch after batch",
    ]
    if found.speedup is not None:
        doubt = f" ± {found.speedup_stderr:.2f}" if found.speedup_stderr else ""
        lines.append(f"speed-up  {found.speedup:.2f}{doubt} × the fat instance")
    if found.energy_j is not None:
        lines.append(f"energy    {figure('energy_j', found.energy_j)} per item")
    if found.interference_percent > 0.0 or found.interference_error_percent is not None:
        error = found.interference_error_percent
        checked = f"; median error on plans left out {percent(error / 100)}" if error else ""
        lines.append(
            f"side by side  up to {percent(found.interference_percent / 100)} slower than alone, "
            f"from the rows of several instances{checked}"
        )
    lines += [f"note      {note}" for note in found.notes]
    for line in lines:
        out.print(f"  {line}", soft_wrap=True)


def _rows(found: Planned) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per shape: which instances, on which cores, with how many items, how long."""
    from tuner.cli.figures import amount

    first, core = 1, 0
    for group, latency_s in zip(found.plan, found.plan_latency_s, strict=True):
        last, end = first + group.instances - 1, core + group.instances * group.threads - 1
        yield (
            _span(first, last),
            f"{group.threads} ({_cores(core, end)})",
            str(group.batch),
            amount("s", latency_s),
        )
        first, core = last + 1, end + 1
    if found.idle_threads:
        yield ("–", f"{found.idle_threads} idle ({_cores(core, found.threads - 1)})", "–", "–")


def _cores(first: int, last: int) -> str:
    return f"core {first}" if first == last else f"cores {_span(first, last)}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
