"""`jouletune speculation profile`: the draft length for each load, from windows."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from agents.config import Attachment
from agents.main import open_target
from tuner.cli.answers import Answer, Rows, with_json
from tuner.cli.output import console, write_text
from tuner.core import Done
from tuner.profiling.decoding import ServerBench
from tuner.profiling.speculation import as_csv


@with_json
def profile(
    workload: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="The running server and the load for it, as in "
            "llama_cpp:http://127.0.0.1:8090#prompts:FILE.json.",
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
        typer.Option(metavar="FILE.csv", help="Keep the windows."),
    ] = None,
) -> Answer:
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
            done, windows = ServerBench(target, draft, window_s, most_foreign).profile(
                status.update
            )
        finally:
            target.close()
    if out is not None:
        write_text(out, as_csv(windows), "--out", 0o666)
    return _answer(done)


def _answer(done: Done) -> Answer:
    """Return a plan with a row for each range of requests at once, and its reason."""
    low, rows = 1, []
    for row in done.plan.rows:
        high = math.floor(row.below) if math.isfinite(row.below) else None
        load = f"{low} and more" if high is None else f"{low} to {high}" if high > low else str(low)
        length = int(row.setting["speculation_length"])
        draft = str(row.setting.get("draft") or "–") if length else "–"
        rows.append((load, str(length) if length else "0 (off)", draft))
        low = low if high is None else high + 1
    table = Rows((">requests decoding", ">length", "draft"), rows, "")
    return Answer({"plan": done.plan, "why": done.why}, [table, f"  {done.why}"])
