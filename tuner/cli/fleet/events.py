"""`jouletune events` and `jouletune audit`: events, and changes over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import typer

from tuner.bounds import visible
from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfStudy
from tuner.cli.output import plain
from tuner.core import Event
from tuner.moments import when

Newest = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Only the latest N.")
]


@with_api()
def events(
    api: Api,
    study: OfStudy = "",
    device: Annotated[str, typer.Option(metavar="ID", help="Only this device.")] = "",
    limit: Newest = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")
    ] = False,
    as_json: bool = False,
) -> Answer | None:
    """Show events of studies, trials and devices.

    With --follow --json it prints one JSON object per line.
    """
    logged = api.events(study or None, device or None, limit)
    if not follow:
        return Answer(
            logged, map(_line, logged) if logged else "no events yet, or none matches the filters"
        )
    _print(logged, as_json=as_json)
    newest = max((event.id for event in logged), default=None)
    coming = api.follow(study or None, device or None, newest)
    _print((event for event in coming if event.id), as_json=as_json)
    return None


def _print(selected: Iterable[Event], *, as_json: bool) -> None:
    """Print each event, as JSON or as a line of text."""
    for event in selected:
        typer.echo(json.dumps(plain(event), ensure_ascii=False) if as_json else _line(event))


def _line(event: Event) -> str:
    """Return an event as text, control characters made visible."""
    about = " ".join(name for name in (event.study, event.device) if name)
    line = f"{when(event.at)}  {event.kind}{f' [{about}]' if about else ''}: {event.text}"
    return "\n".join(map(visible, line.split("\n")))


@with_api(lists=True)
def audit(
    api: Api,
    who: Annotated[
        str, typer.Option(metavar="NAME", help="Only requests with the token of this name.")
    ] = "",
    limit: Newest = 50,
) -> Answer:
    """Show changes over HTTP with their authors, and refused requests. Needs an admin's token."""
    entries = api.access.audit(limit, who or None)
    rows = (
        (
            when(e.at),
            e.who or "unknown",
            "done" if e.status < 400 else f"refused ({e.status})",
            f"{e.method} {e.path}",
            e.role or "–",
            e.address or "–",
        )
        for e in entries
    )
    columns = ("when", "who", "result", "request", "+role", "+address")
    return Answer(entries, Rows(columns, rows, "no changes and no refusals yet"))
