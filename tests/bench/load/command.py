"""`python -m tests.bench load`: plans by the load, against governors and oracles, on simulated servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tests.bench.load.cells import CellRow
    from tests.bench.load.judge import Task

DAY_SERVER = "simulated:l20-llm/qwen2.5-7b"


def load(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TRACE.csv]...",
            help="Requests: arrival_s, prompt_tokens, output_tokens; about an hour each.",
        ),
    ] = None,
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            metavar="SPECS",
            help="Servers: simulated:NAME[/MODEL] or module:NAME; without it, all that are simulated.",
        ),
    ] = "",
    slack: Annotated[
        str, typer.Option(metavar="S,S", help="The limits, × what the defaults mostly keep.")
    ] = "2",
    windows: Annotated[
        int, typer.Option(min=1, help="Windows of 299 requests a cell, at least.")
    ] = 100,
    day: Annotated[bool, typer.Option(help="Judge a made-up day, too.")] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Written after every cell; other cells that it already has are kept. Beside it are the "
            "runs of the rivals, played again only if their code changes.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tune on the first half of each trace, judge the second beside every rival.

    Each server gets the largest share of a trace that does not overload it. All cells have limits on the
    p99 of time to first token and of time per token, windows of 299 requests, and at least ten seeds.
    """
    from jouletune_bench.llm import read_trace
    from tests.bench.load.judge import of_trace
    from tests.bench.load.servers import builtin
    from tests.bench.result import header
    from tuner.cli.output import echo_json
    from tuner.main import limit_threads

    limit_threads()
    specs = [s.strip() for s in devices.split(",") if s.strip()] or builtin()
    slacks = [float(s) for s in slack.split(",")]
    tasks = []
    for spec in specs:
        for path in traces or ():
            trace = read_trace(path)
            tasks.append(of_trace(spec, path.stem, trace, slacks, least_windows=windows))
    if day:
        from tests.bench.load.day import task

        tasks.append(task(specs[0] if devices else DAY_SERVER, max(slacks)))
    cells: list[CellRow] = []
    runs = None if output is None else output.with_suffix(".runs.sqlite")
    for rows in _judged(tasks, jobs, runs):
        cells += rows
        if output is not None:
            _write(output, {**header(), "cells": cells})
    if as_json:
        echo_json({**header(), "cells": cells})
    else:
        _show(cells)


def load_real(
    output: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the result goes.")],
) -> None:
    """Judge a plan by load on a real service in rounds, on this machine: ten minutes."""
    from tests.bench.load.real import real
    from tests.bench.result import header
    from tuner.cli.output import json_text
    from tuner.main import limit_threads

    limit_threads()
    output.write_text(json_text({**header(), **real(typer.echo)}) + "\n")


def _write(output: Path, result: object) -> None:
    """Write a result, with the cells of an earlier result that were not judged again."""
    from tuner.cli.output import json_text

    judged = json.loads(json_text(result))
    cells = judged["cells"]
    again = {_place(cell) for cell in cells}
    if output.exists():
        before = json.loads(output.read_text())["cells"]
        cells = [cell for cell in before if _place(cell) not in again] + cells
    output.write_text(json_text({**judged, "cells": cells}) + "\n")


def _place(cell: dict[str, Any]) -> tuple[Any, ...]:
    return cell["server"], cell["trace"], cell["slack"]


def judge_one(task: Task, runs: Path | None) -> list[CellRow]:
    """Judge one task, in a separate process."""
    from tests.bench.load.judge import judge
    from tests.bench.load.kept import KeptRuns
    from tests.bench.load.servers import opener

    return judge(task, opener(task.server), KeptRuns(runs))


def _judged(tasks: Sequence[Task], jobs: int, runs: Path | None) -> Iterator[list[CellRow]]:
    """Yield the rows of each task as soon as they are known."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    if jobs == 1 or len(tasks) == 1:
        yield from (judge_one(task, runs) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(judge_one, tasks, [runs] * len(tasks))


def _show(cells: Sequence[CellRow]) -> None:
    from tests.bench.result import print_list
    from tuner.cli.output import console

    for cell in cells:
        typer.echo(
            f"{cell.server}, 1/{cell.share} of {cell.trace}: TTFT p99 <= {cell.ttft_p99_ms:.0f} ms, "
            f"TPOT p99 <= {cell.tpot_p99_ms:.1f} ms; {cell.windows} windows, {cell.seeds} seeds"
        )
        heads = ("arm", ">W", ">saved", ">of the way", ">above", ">worst", "keeps")
        print_list(
            console(), heads, (
                (
                    arm.arm, f"{arm.watts:.0f}", f"{arm.saving:.1%}",
                    "nothing to gain"
                    if arm.captured is None or arm.captured_stderr is None
                    else f"{arm.captured:.2f} ± {arm.captured_stderr:.2f}", f"{arm.above:.1%}",
                    f"{arm.worst:.2f} ×", "yes" if arm.keeps else "no",
                )
                for arm in cell.arms
            ),
        )  # fmt: skip
