"""`jouletune speculation profile` and `table`: the draft length for each load, from windows."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from agents.config import Attachment
from agents.main import open_target
from tuner.cli.options import AsJson
from tuner.cli.output import console, echo_json, print_list
from tuner.core import Plan
from tuner.profiling.decoding import ServerBench
from tuner.profiling.speculation import planned, read_profile, write_profile


def profile(
    workload: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="The running server and the load for it, as in "
            "llama_cpp:http://127.0.0.1:8090#prompts:FILE.json.",
            show_default=False,
        ),
    ],
    device: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="The device that measures its energy; its knobs are not set."
        ),
    ] = "cpu",
    draft: Annotated[
        str, typer.Option(metavar="NAME", help="The draft to profile; empty: all drafts.")
    ] = "",
    window_s: Annotated[
        float, typer.Option(metavar="S", min=0.2, help="Seconds per window.")
    ] = 5.0,
    most_foreign: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0.0, max=1.0, help="Repeat windows with a larger foreign load."
        ),
    ] = 0.15,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Keep the windows, for `speculation table`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile a running server in a few windows, and print the draft length for each load.

    Sends 1 to 32 requests at a time, up to 256 while drafting pays, at each draft length; then restores
    the setting. Acceptance depends on the texts, so use your own.
    """
    with (
        console(stderr=True).status("starting") as status,
        tempfile.TemporaryDirectory(prefix="jouletune-") as folder,
    ):
        target = open_target(Attachment(device, workload), "profile", 0, Path(folder), Path("/"))
        try:
            measured = ServerBench(target, draft, window_s, most_foreign).profile(status.update)
        finally:
            target.close()
    if out is not None:
        write_profile(out, measured.windows)
    _show_plan(measured.plan, measured.why, as_json=as_json)


def table_(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="A profile.")],
    as_json: AsJson = False,
) -> None:
    """Print the draft length for each number of requests, from a profile; measure nothing."""
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
                str(row.setting.get("draft") or "–") if length else "–",
            )
        )
        low = low if high is None else high + 1
    print_list(out, (">requests decoding", ">length", "draft"), rows)
    out.print(f"  {why}", soft_wrap=True)
