"""`jouletune packrat plan`: the best instances, threads and batches, on paper, from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import packrat_measure
from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from policies.packrat.interference import Interference
    from policies.packrat.packing import Aim, Group, Packing
    from tuner.cli.profiles import Measured

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


class Asked:
    """A question to a measured profile."""

    def __init__(
        self,
        measured: Measured,
        threads: int,
        batch: int,
        mixed: bool,
        memory_bytes: float = float("inf"),
    ) -> None:
        from policies.packrat.interference import fit

        self.measured = measured
        self.threads = threads
        self.batch = batch
        self.mixed = mixed
        self.memory_bytes = memory_bytes
        cores = measured.profile.threads
        self.interference: Interference = fit(measured.profile, measured.windows, cores)

    def packing(
        self, batch: int, aim: Aim | None = None, latency_limit_s: float = float("inf")
    ) -> Packing:
        """Return the best packing of a batch. Raises InvalidInput where there is none."""
        from policies.packrat.packing import Aim, best_packing

        return best_packing(
            self.measured.profile,
            self.threads,
            batch,
            mixed=self.mixed,
            aim=aim or Aim.LATENCY,
            latency_limit_s=latency_limit_s,
            memory_bytes=self.memory_bytes,
            interference=self.interference,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The answer: the instances and what they are expected to reach beside the fat instance.

    `plan_latency_s` is what each entry of `plan` is expected to take. `speedup` is how many times as
    fast the batch is done (with the objective throughput: how many times as many items per second);
    None where the profile lacks the fat instance. `interference_percent` is how much slower an
    instance is when all other threads of the profiled machine are busy, from the rows of several
    instances; `interference_error_percent` the median error on plans left out of its fit.
    """

    model: str
    threads: int
    batch: int
    objective: str
    plan: tuple[Group, ...]
    plan_latency_s: tuple[float, ...]
    predicted_latency_s: float
    fat_latency_s: float | None
    speedup: float | None
    throughput_per_s: float
    energy_j: float | None
    idle_threads: int
    room: int
    interference_percent: float
    interference_error_percent: float | None
    notes: tuple[str, ...]


def planned(asked: Asked, objective: str, constraint: str) -> Planned:
    """Return the best plan. Raises InvalidInput and its kin for what has no answer."""
    from policies.packrat.packing import Aim
    from tuner.core import ConfigError

    try:
        aim = Aim(objective)
    except ValueError:
        raise ConfigError(
            f"--objective cannot be {objective!r}", hint=f"choose {', '.join(Aim)}"
        ) from None
    profile = asked.measured.profile
    fat_s = profile.fat(asked.threads, asked.batch)
    found = asked.packing(asked.batch, aim, _limit_s(constraint, fat_s))
    reference = asked.batch / fat_s if fat_s is not None else None
    reached = asked.batch / found.latency_s
    if aim is Aim.THROUGHPUT:
        reached = found.throughput_per_s
    correction = asked.interference
    error = correction.error_median
    return Planned(
        model=asked.measured.model,
        threads=asked.threads,
        batch=asked.batch,
        objective=objective,
        plan=found.groups,
        plan_latency_s=tuple(
            profile.points[g.threads, g.batch].latency_s
            * correction.slowdown(g.threads, found.threads)
            for g in found.groups
        ),
        predicted_latency_s=found.latency_s,
        fat_latency_s=fat_s,
        speedup=reached / reference if reference is not None else None,
        throughput_per_s=found.throughput_per_s,
        energy_j=found.energy_j,
        idle_threads=asked.threads - found.threads,
        room=found.items,
        interference_percent=100.0 * correction.share,
        interference_error_percent=None if error is None else 100.0 * error,
        notes=tuple(_notes(asked, found, aim)),
    )


def _notes(asked: Asked, found: Packing, aim: Aim) -> Iterator[str]:
    """Yield what one must know to read the plan rightly."""
    from policies.packrat.packing import Aim
    from tuner.core import InvalidInput

    profile = asked.measured.profile
    if found.items > asked.batch:
        yield (
            f"no profiled batch sizes add up to {asked.batch} here: the plan has room for "
            f"{found.items}, and its instances run fewer items at the cost of their full batch"
        )
    if profile.fat(asked.threads, asked.batch) is None:
        yield (
            f"the profile has no instance with {asked.threads} threads and {asked.batch} items or "
            "more: there is nothing to compare with"
        )
    rounded = 1 << (asked.batch - 1).bit_length()
    if aim is Aim.LATENCY and rounded > asked.batch:
        try:
            larger = asked.packing(rounded)
        except InvalidInput:
            return
        if larger.latency_s < found.latency_s:
            yield (
                f"{rounded} items would be done in {larger.latency_s:.4g} s: "
                f"round the batch up (--batch {rounded})"
            )


def _limit_s(constraint: str, fat_s: float | None) -> float:
    """Return the limit in seconds, infinite for none. Raises ConstraintSyntax, ConfigError."""
    from tuner.core import ConfigError, Constraint, Estimate

    if not constraint:
        return float("inf")
    parsed = Constraint.parse(constraint)
    if parsed.metric != "latency_s" or parsed.op != "<=":
        raise ConfigError(
            f"a plan cannot be held to {constraint!r}", hint='write it like "latency_s <= 0.05"'
        )
    limit = parsed.limit({} if fat_s is None else {"latency_s": Estimate(fat_s)})
    if limit is None:
        raise ConfigError(
            f"{constraint!r} has no baseline: the profile lacks the fat instance",
            hint='give an absolute limit, like "latency_s <= 0.05"',
        )
    return limit


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
    from tuner.cli.figures import figure, percent
    from tuner.cli.output import console, table

    out = console()
    rows = [*_rows(found)]
    about = (
        f"{found.model}: batch of {found.batch} on {found.threads} threads, best {found.objective}"
    )
    out.print(about, style="bold", soft_wrap=True)
    out.print(table("instances", "threads of each", ">items of each", ">expected", rows=rows))
    fat = (
        "not profiled" if found.fat_latency_s is None else figure("latency_s", found.fat_latency_s)
    )
    lines = [
        f"batch     done in {figure('latency_s', found.predicted_latency_s)}; one fat instance: {fat}",
        f"rate      {figure('throughput_per_s', found.throughput_per_s)}, batch after batch",
    ]
    if found.speedup is not None:
        lines.append(f"speed-up  {found.speedup:.2f} × the fat instance")
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
    from tuner.cli.figures import figure

    first, core = 1, 0
    for group, latency_s in zip(found.plan, found.plan_latency_s, strict=True):
        last, end = first + group.instances - 1, core + group.instances * group.threads - 1
        yield (
            _span(first, last),
            f"{group.threads} (cores {_span(core, end)})",
            str(group.batch),
            figure("latency_s", latency_s),
        )
        first, core = last + 1, end + 1
    if found.idle_threads:
        yield ("–", f"{found.idle_threads} idle (cores {_span(core, found.threads - 1)})", "–", "–")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
