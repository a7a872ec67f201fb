"""`jouletune top`: the fleet, live, in a terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from tuner.cli.options import TokenFile, TunerUrl
from tuner.cli.output import console, table
from tuner.cli.place import place, reached
from tuner.cli.watching import looks
from tuner.core import ConfigError
from tuner.presentation.figures import amount, change, how_many, percent, when
from tuner.wire import FleetRow, FleetView

STYLES = {
    "safe": "green",
    "holding": "green",
    "trying": "cyan",
    "proposed": "cyan",
    "paused": "yellow",
    "stopped": "yellow",
    "offline": "red",
    "limit not met": "bold red",
}
WRONG_FIRST = tuple(reversed(STYLES))


def top(
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """Show every device as it stands, what is wrong first, until Ctrl+C.

    Needs a tuner (`--tuner`, or $JOULETUNE_TUNER): only it knows which devices are heard of.
    """
    where = place(tuner, token_file, "", os.environ, Path.cwd())
    if not where.tuner:
        raise ConfigError("top needs a running tuner", hint="give --tuner http://127.0.0.1:8790")
    screen = console()
    with reached(where) as api:
        if once or not screen.is_terminal:
            screen.print(pictured(api.fleet(), screen.height * 1_000))
            return
        with (
            Live(console=screen, screen=True, auto_refresh=False) as live,
            suppress(KeyboardInterrupt),
        ):
            for _ in looks(api, True, clear=False):
                live.update(pictured(api.fleet(), screen.height), refresh=True)


def pictured(view: FleetView, height: int) -> RenderableType:
    """Return a fleet as a head of sums and as many devices as fit, what is wrong first."""
    head = Text(f"{len(view.rows)} devices  ")
    for word in WRONG_FIRST:
        if count := view.health.get(word, 0):
            head.append(f"{count} {word}  ", STYLES[word])
    if view.saved is not None:
        saved = view.saved
        head.append(f"saved {amount('J', saved.joules, saved.stderr_j)}, {saved.kwh:.4g} kWh")
        if saved.cost is not None:
            head.append(f", {saved.cost:.2f} {saved.currency}")
        if saved.uncounted:
            several = how_many(saved.uncounted, "study", "studies")
            head.append(f", not counted: {several} on several devices together")
    rows = sorted(view.rows, key=lambda row: (WRONG_FIRST.index(str(row.health)), row.device))
    fitting = max(1, height - 6)
    shown = table(
        "device", "stands", "study", "applied", ">saves", ">saved so far", "energy is",
        rows=[_row(row) for row in rows[:fitting]],
    )  # fmt: skip
    for number, row in enumerate(rows[:fitting]):
        shown.rows[number].style = STYLES[str(row.health)] if row.health != "safe" else ""
    more = len(rows) - fitting
    return Group(head, shown, *([Text(f"and {more} more")] if more > 0 else []))


def _row(row: FleetRow) -> tuple[str, ...]:
    stands = f"offline since {when(row.last_seen)}" if row.health == "offline" else str(row.health)
    return (
        row.device,
        f"{stands}: {row.unable}" if row.unable else stands,
        ": ".join(filter(None, (f"{row.study} {row.phase}", row.error))) if row.study else "–",
        change(row.setting, row.default) if row.setting else "–",
        percent(row.saving.mean, row.saving.stderr) if row.saving else "–",
        "–" if row.saved_j is None else amount("J", row.saved_j, row.saved_stderr_j or 0.0),
        row.energy_origin or "not measured",
    )
