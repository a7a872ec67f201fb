"""`jouletune top`: the fleet in a terminal, live."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from tuner.cli import listing
from tuner.cli.options import AsJson, TokenFile, TunerUrl
from tuner.cli.output import console, echo_json, list_width
from tuner.cli.place import place, reached
from tuner.cli.watching import looks
from tuner.core import ConfigError
from tuner.moments import when
from tuner.presentation.figures import amount, change, how_many, percent
from tuner.presentation.standing import WORST_FIRST, worst_first
from tuner.presentation.texts import saved_texts
from tuner.wire import FleetRow, FleetView, Health

STYLES = {
    "safe": "green",
    "holding": "green",
    "observed": "cyan",
    "trying": "cyan",
    "proposed": "cyan",
    "paused": "yellow",
    "stopped": "yellow",
    "offline": "red",
    "not measured": "red",
    "limit not met": "bold red",
    "unreadable": "bold red",
}
COLUMNS = (
    "=device", "status", "study", ">saving", ">saved", "~applied", "+energy source", "+last report",
    "+reason",
)  # fmt: skip


def top(
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every device live, problems first, until Ctrl-C.

    Needs a running tuner (`--tuner` or $JOULETUNE_TUNER): only it receives the agents' reports.
    """
    where = place(tuner, token_file, "", os.environ, Path.cwd())
    if not where.tuner:
        raise ConfigError("top needs a running tuner", hint="give --tuner http://127.0.0.1:8790")
    screen = console()
    with reached(where) as api:
        if as_json:
            echo_json(api.fleet())
            return
        if once or not screen.is_terminal:
            screen.print(pictured(api.fleet(), screen.height * 1_000, list_width()), soft_wrap=True)
            return
        with (
            Live(console=screen, screen=True, auto_refresh=False) as live,
            suppress(KeyboardInterrupt),
        ):
            for _ in looks(api, True, clear=False):
                live.update(pictured(api.fleet(), screen.height, screen.width), refresh=True)


def pictured(view: FleetView, height: int, width: int | None) -> RenderableType:
    """Return a line of sums and as many devices as fit, problems first."""
    rows = worst_first(view.rows)
    above_all = sums(view, width)
    fitting = max(1, height - 3 - len(above_all))
    made = listing.listing(COLUMNS, map(device_row, rows[:fitting]), width)
    shown = [
        Text(line, "" if row.health is Health.SAFE else STYLES[str(row.health)], no_wrap=True)
        for row, line in zip(rows, made.body, strict=False)
    ]
    hidden = f"{how_many(made.hidden, 'column')} hidden: jouletune fleet -o wide" * bool(
        made.hidden
    )
    above = f"and {len(rows) - fitting} more" * (len(rows) > fitting)
    more = [Text("; ".join(filter(None, (above, hidden))))] if above or hidden else []
    return Group(*map(Text, above_all), Text(made.head, "bold", no_wrap=True), *shown, *more)


def sums(view: FleetView, width: int | None = None) -> list[str]:
    """Return the fleet in lines of at most this width: devices by status, and the saved energy."""
    parts = [how_many(len(view.rows), "device")]
    parts += [f"{n} {word}" for word in WORST_FIRST if (n := view.health.get(word, 0))]
    parts += saved_texts(view)
    if view.pending:
        done = view.studies - view.pending
        parts.append(f"computing savings and limits: {done} of {view.studies} studies done")
    return listing.folded(parts, width)


def device_row(row: FleetRow) -> tuple[str, ...]:
    """Return a device in `COLUMNS`."""
    return (
        row.device,
        f"{row.health}, blocked" if row.unable and not row.observed else str(row.health),
        row.study or "–",
        percent(row.saving.mean, row.saving.stderr) if row.saving else "–",
        "–" if row.saved_j is None else amount("J", row.saved_j, row.saved_stderr_j or 0.0),
        change(row.setting, row.default) if row.setting else "–",
        row.energy_origin or "not measured",
        when(row.last_seen),
        row.error or row.unable or "–",
    )
