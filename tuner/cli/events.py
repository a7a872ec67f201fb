"""`jouletune events` and `jouletune audit`: what happened, and who changed what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson, Db, OfStudy, TokenFile, TunerUrl

if TYPE_CHECKING:
    from tuner.core import Event

Last = Annotated[int, typer.Option("--last", min=1, max=10_000, help="So many of the latest.")]


def events(
    study: OfStudy = "",
    device: Annotated[str, typer.Option(metavar="ID", help="Only this device.")] = "",
    last: Last = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Show what happened: studies that moved, trials that failed, devices that changed.

    With --follow --json it is one JSON object a line.
    """
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json

    with open_api(tuner, token_file, db) as api:
        known = api.events(study or None, device or None, last)
        if as_json and not follow:
            echo_json(known)
            return
        if not known and not follow:
            typer.echo("no events yet, or none fits the filters")
        _print(known, as_json=as_json)
        if follow:
            newest = max((event.id for event in known), default=None)
            coming = api.follow(study or None, device or None, newest)
            _print((event for event in coming if event.id), as_json=as_json)


def _print(found: Iterable[Event], *, as_json: bool) -> None:
    import json

    from tuner.bounds import visible
    from tuner.cli.output import plain

    for event in found:
        if as_json:
            typer.echo(json.dumps(plain(event), ensure_ascii=False))
            continue
        about = " ".join(name for name in (event.study, event.device) if name)
        at = f"{event.at.astimezone():%Y-%m-%d %H:%M:%S%z}"
        line = f"{at}  {event.kind}{f' [{about}]' if about else ''}: {event.text}"
        typer.echo("\n".join(map(visible, line.split("\n"))))


def audit(
    who: Annotated[str, typer.Option(metavar="NAME", help="Only this token's.")] = "",
    last: Last = 50,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Show who changed what over HTTP, and what was refused. Needs an admin's token."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table

    with open_api(tuner, token_file, db) as api:
        entries = api.access.audit(last, who or None)
    if as_json:
        echo_json(entries)
        return
    echo_table(
        "at", "who", "role", "from", "request", "answer",
        rows=(
            (
                f"{e.at.astimezone():%Y-%m-%d %H:%M:%S%z}",
                e.who or "unknown",
                e.role or "–",
                e.address or "–",
                f"{e.method} {e.path}",
                "done" if e.status < 400 else f"refused ({e.status})",
            )
            for e in entries
        ),
        nothing="nothing was changed or refused yet",
    )  # fmt: skip
