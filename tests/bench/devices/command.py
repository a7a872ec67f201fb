"""`python -m tests.bench devices`: judge policies on simulated boards over their full grids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tests.bench.devices.boards import Answer, BoardRow

BOARDS = "simulated:tx2,simulated:orin"
POLICIES = "polythrottle,polythrottle-two-phase,sobol"


def devices(
    boards: Annotated[
        str, typer.Option("--devices", metavar="SPECS", help="Devices whose true values are known.")
    ] = BOARDS,
    policies: Annotated[str, typer.Option(metavar="NAMES", help="Which to compare.")] = POLICIES,
    seeds: Annotated[int, typer.Option(min=1, help="Studies each, every one with its noise.")] = 3,
    slack: Annotated[float, typer.Option(help="The latency limit, × the baseline's p99.")] = 1.2,
    trials: Annotated[int, typer.Option(min=1, help="Settings each study may try.")] = 20,
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB", help="Leave this knob at its default: what does it add? Repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tune simulated boards from their vendors' defaults, and score what is held by the true values.

    Whole studies as in production: baseline, tuning, confirming, holding, over the board's own noisy
    meter and in its own time. Beside it stands what PolyThrottle's authors report of real boards.
    """
    from tuner.main import limit_threads

    limit_threads()
    from tests.bench.devices.boards import answer, questions, rows
    from tests.bench.result import header
    from tuner.cli.output import echo_json

    todo = questions(_listed(boards), _listed(policies), seeds, slack, trials, fixed or ())
    answers: list[Answer] = []
    with _progress(len(todo)) as now:
        for question in todo:
            now(f"{question.policy} on {question.device}, seed {question.seed}", len(answers))
            answers.append(answer(question))
        now("all studies ended", len(answers))
    board_rows = rows(answers)
    if as_json:
        written = {"slack": slack, "trials": trials, "rows": board_rows, "studies": answers}
        echo_json({**header(), **written})
    else:
        _show(board_rows, slack, trials)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _show(board_rows: Sequence[BoardRow], slack: float, trials: int) -> None:
    from tests.bench.result import print_list
    from tuner.cli.output import console
    from tuner.presentation.figures import percent

    heads = (
        "device", ">settings", "policy", ">saved", ">the most there is", ">captured",
        ">trials to 95 %", ">tried above the limit", ">held above it", ">s per suggestion",
    )  # fmt: skip
    print_list(
        console(), heads, (
            (
                row.device, f"{row.settings:,}", row.policy, percent(row.saving, row.saving_stderr),
                percent(row.possible), f"{row.captured:.2f}", _to_near(row),
                percent(row.violations), f"{row.held_above} of {row.studies}",
                f"{row.seconds_per_suggestion:.2f}",
            )
            for row in board_rows
        ),
    )  # fmt: skip
    typer.echo(
        f"SIMULATED boards, {trials} trials, latency_p99_ms <= {slack:g}x the vendor's defaults; "
        "means over the seeds, true values.\n"
        "trials to 95 %: until the best proven setting had 95 % of the most there is; the median of "
        "the studies that came there.\n"
        "PolyThrottle (arXiv 2310.19991) reports of real boards and models: up to 36 % saved, near "
        "the best after a handful of samples."
    )


def _to_near(row: BoardRow) -> str:
    if row.trials_to_near is None:
        return f"never (0 of {row.studies})"
    return f"{row.trials_to_near:g} ({row.near} of {row.studies})"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """Show the progress of the studies on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tuner.cli.output import console

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(stderr=True)) as progress:
        bar = progress.add_task("", total=total)

        def now(text: str, done: int) -> None:
            progress.update(bar, description=text, completed=done)

        yield now
