"""The common command line of the comparisons of tuners: options, progress, figures and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from tests.bench.contest.contest import ContestTerms, Standings
    from tests.bench.contest.runs import Result
    from tests.bench.contest.surfaces import SurfaceProblem

LINES = 20
"""The number of lines of progress without a terminal."""

Tuners = Annotated[
    str,
    typer.Option(metavar="NAMES", help="Which to compare; also ours-strict, ours-off, ceiling."),
]
Budgets = Annotated[str, typer.Option(metavar="COUNTS", help="After how many trials to look.")]
Slack = Annotated[
    str, typer.Option(metavar="FACTORS", help="Limits, as multiples of the true baseline.")
]
Noise = Annotated[float, typer.Option(help="Relative noise of one window.")]
Seeds = Annotated[int, typer.Option(help="Studies per surface, each with its own noise.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to share the studies.")]
Sources = Annotated[
    str, typer.Option(metavar="NAMES", help="Only these sources (kinds); all where none is named.")
]
PerSource = Annotated[
    int | None,
    typer.Option("--surfaces-per-source", min=1, help="At most so many surfaces of each."),
]
OwnBaseline = Annotated[
    bool,
    typer.Option(
        "--own-baseline", help="Take the limits from the study's own two noisy baseline windows."
    ),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the figures, too.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="Write the JSON there, too.")
]

Variants = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml",
        help="Compare variants of a policy, too: a table each, with its safety, without, options.",
    ),
]
Without = Annotated[
    str, typer.Option(metavar="RULES", help="Compare ours without each of these rules, too.")
]
LeaveOneOut = Annotated[
    bool,
    typer.Option(
        "--leave-one-out",
        help="Choose among the variants and ours on all sources but one, and score it there.",
    ),
]
MostAbove = Annotated[
    float, typer.Option(help="Windows above a limit per study that a choice may have.")
]

EVERY_TUNER = "ours,sobol,hillclimb,optuna-tpe,optuna-gp,botorch-plain"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """The output files of the figures, and the number of processes."""

    jobs: int
    plot: Path | None
    output: Path | None
    as_json: bool
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """The compared variants beside the named tuners, and whether one of them is chosen."""

    variants: Path | None
    without: str
    leave_one_out: bool
    most_above: float


def terms_of(
    tuners: str,
    budgets: str,
    slack: str,
    noise: float,
    seeds: int,
    own_baseline: bool,
    choosing: Choosing,
) -> ContestTerms:
    """Return the terms of a comparison from the options. Raises InvalidInput."""
    from tests.bench.contest.contest import ContestTerms
    from tests.bench.contest.variants import load_variants, without_each

    named = {} if choosing.variants is None else load_variants(choosing.variants)
    variants = {**named, **without_each(names("without", choosing.without))}
    return ContestTerms(
        tuners=(*names("tuners", tuners), *variants),
        budgets=tuple(sorted(_listed("budgets", budgets, int))),
        slacks=_listed("slack", slack, float),
        noise=noise,
        seeds=seeds,
        own_baseline=own_baseline,
        variants=variants,
        leave_one_out=choosing.leave_one_out,
        most_above=choosing.most_above,
    )


def telling(
    jobs: int, plot: Path | None, output: Path | None, as_json: bool, seed: int | None = None
) -> Telling:
    """Return the outputs after a check that they can be written. Raises InvalidInput."""
    _check_files(plot, output)
    return Telling(jobs=jobs, plot=plot, output=output, as_json=as_json, seed=seed)


def names(option: str, text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated option."""
    return _listed(option, text, str)


def compete(problems: Sequence[SurfaceProblem], terms: ContestTerms, telling: Telling) -> None:
    """Run every study of a comparison and print its results; exit with 1 if any study failed."""
    from tests.bench.contest.contest import jobs_of, standings
    from tests.bench.contest.runs import run_all

    todo = jobs_of(problems, terms)
    with _progress(len(todo)) as done:
        results = standings(todo, run_all(todo, telling.jobs, done), terms)
    _tell(results, telling)
    if results.failures:
        typer.echo(f"error: {len(results.failures)} of {len(todo)} studies broke down", err=True)
        raise typer.Exit(1)


def _tell(results: Standings, telling: Telling) -> None:
    """Print the standings, and write the requested files. Raises StoreError."""
    from tests.bench.contest.plot import draw
    from tests.bench.contest.standings import markdown
    from tests.bench.result import header
    from tuner.cli.output import echo_json, json_text

    written = {**header(telling.seed), **asdict(results)}
    if telling.as_json:
        echo_json(written)
    else:
        typer.echo(markdown(results))
    if (output := telling.output) is not None:
        _write(output, lambda path: path.write_text(json_text(written) + "\n", encoding="utf-8"))
    if (plot := telling.plot) is not None:
        _write(plot, lambda path: draw(results.rows, path))


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file at the end of all studies. Raises StoreError: it cannot be written."""
    from tuner.core import StoreError

    try:
        write(path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}",
            hint="the figures are printed above; name another file",
        ) from None


def _check_files(plot: Path | None, output: Path | None) -> None:
    """Check before any study that both files can be written. Raises InvalidInput."""
    from tests.bench.contest.contest import require
    from tuner.core import InvalidInput

    if plot is not None:
        require("matplotlib", "--plot")
    for option, path, ending in (("plot", plot, ".png"), ("output", output, ".json")):
        if path is None:
            continue
        folder = path.absolute().parent
        if path.suffix != ending or path.is_dir() or not os.access(folder, os.W_OK):
            raise InvalidInput(
                f"cannot write --{option} {path}",
                hint=f"name a {ending} file in a folder that exists and that you may write",
            )


def _listed(option: str, text: str, kind: Callable[[str], Item]) -> tuple[Item, ...]:
    """Return the items of a comma-separated option."""
    from tuner.core import InvalidInput

    try:
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise InvalidInput(
            f"cannot read --{option} {text!r}", hint="write numbers separated by commas"
        ) from None


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Result], None]]:
    """Show the progress on stderr: a bar on a terminal, otherwise `LINES` lines.

    A failed study gets a separate line.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from tests.bench.contest.runs import Failure
    from tuner.cli.output import console

    columns = (TextColumn("studies"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("studies", total=total)
        ended = 0

        def done(result: Result) -> None:
            nonlocal ended
            ended += 1
            if isinstance(result, Failure):
                screen.print(f"{result.task} broke down: {result.error}", soft_wrap=True)
            progress.advance(bar)
            if not screen.is_terminal and ended * LINES // total > (ended - 1) * LINES // total:
                screen.print(f"{ended} of {total} studies")

        yield done
