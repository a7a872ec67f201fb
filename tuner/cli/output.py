"""Where commands write: one JSON document on stdout, or rich tables and lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 240
TABLE_WIDTH = 120
"""A narrower terminal gets lines: there a table of trials would break its words."""

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def plain(value: object) -> Plain:
    """Return a value as strict JSON has it. A bound that is infinite becomes null.

    Messages and dataclasses become objects by their fields, times ISO 8601.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    # A message: iterating gives its fields. `protocol` is for the wire only.
    items: Iterable[tuple[str, object]] = value  # type: ignore[assignment]
    return {name: plain(item) for name, item in items if name != "protocol"}


def json_text(value: object) -> str:
    """Return a value as one JSON document."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json_text(value))


def table(*columns: str, rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """Return a plain table; columns whose name begins with `>` are aligned to the right.

    The first column is what one types or searches for: it is never folded.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=not made.columns,
        )
    for row in rows:
        made.add_row(*row)
    return made


def echo_table(*columns: str, rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print a table, or a line that says there is nothing."""
    found = list(rows)
    if not found:
        typer.echo(nothing)
        return
    console().print(table(*columns, rows=found))


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is. Without a terminal it is wide: nothing is folded."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made
