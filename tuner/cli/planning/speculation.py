"""`jouletune speculation profile` and `table`: the draft length for each load, from windows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import AsJson
from tuner.cli.output import console, echo_json, table
from tuner.core import Plan
from tuner.profiling.speculation import planned, read_profile, write_profile


def profile(
    draft: Annotated[str, typer.Option(help="Which draft of the reference engine.")] = "wide",
    window_s: Annotated[float, typer.Option(metavar="S", min=0.2, help="Seconds of one.")] = 1.5,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Keep the windows, for `speculation table`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile the reference engine here by a few windows, and print the length for each load.

    The first time its models are trained, which takes minutes. An engine of your own is profiled by a
    study: `jouletune run --workload llama_cpp:http://127.0.0.1:8090 --policy speculation`.
    """
    # The engine is a torch program.
    from tuner.profiling.engine import EngineBench, WindowTerms, open_timer

    with console(stderr=True).status("starting") as status:
        timer = open_timer(status.update)
        with timer.running():
            found = EngineBench(timer, WindowTerms(window_s, 2, 0.1), status.update).profile(draft)
    if out is not None:
        write_profile(out, found.windows)
    _show_plan(found.plan, found.why, as_json=as_json)


def table_(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="A profile.")],
    as_json: AsJson = False,
) -> None:
    """Print the length for each number of requests that a profile's windows give, without measuring."""
    done = planned(*read_profile(file))
    _show_plan(done.plan, done.why, as_json=as_json)


def _show_plan(plan: Plan, why: str, *, as_json: bool) -> None:
    if as_json:
        echo_json({"plan": plan, "why": why})
        return
    out = console()
    low, rows = 1, []
    for row in plan.rows:
        high = math.floor(row.below) if math.isfinite(row.below) else None
        load = f"{low} and more" if high is None else f"{low} to {high}" if high > low else str(low)
        length = int(row.setting["speculation_length"])
        rows.append(
            (
                load,
                str(length) if length else "0 (off)",
                str(row.setting["draft"]) if length else "–",
            )
        )
        low = low if high is None else high + 1
    out.print(table(">requests decoding", ">length", "draft", rows=rows))
    out.print(f"  {why}", soft_wrap=True)
