"""Where commands write: one JSON document on stdout, or rich tables and lines."""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tuner import files
from tuner.bounds import CONTROL, visible
from tuner.core import StoreError

PIPE_WIDTH = 240
TABLE_WIDTH = 120
"""A narrower terminal gets paragraphs where a table would break its words."""

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
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)
    # json escapes what is below 0x20; the line ends are its own.
    return "\n".join(CONTROL.sub(_escaped, line) for line in text.split("\n"))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json_text(value))


def write_text(output: Path, text: str) -> None:
    """Write what `--output` asks for, whole or not at all, into a folder that there is.

    A new file is its owner's alone.

    Raises:
        StoreError: there is no such folder, or the disk refuses.
    """
    if not output.parent.is_dir():
        raise StoreError(
            f"cannot write {output}: there is no such folder", hint="choose another --output"
        )
    files.write(output, text, 0o600, keep_mode=True)


def table(*columns: str, rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """Return a plain table; columns whose name begins with `>` are aligned to the right.

    The first column is what one types or searches for: it is never folded.
    """
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
        made.add_row(*map(visible, row))
    return made


def echo_table(*columns: str, rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print a table, or a line that says there is nothing."""
    found = list(rows)
    if not found:
        typer.echo(nothing)
        return
    screen = console()
    screen.print(listed(*columns, rows=found, width=screen.width), soft_wrap=True)


def listed(*columns: str, rows: Sequence[Sequence[str]], width: int) -> Table | str:
    """Return a table; on a narrow terminal that it does not fit into, a paragraph a row.

    Of the columns the first is what one types or searches for: it begins the paragraph.
    """
    made = table(*columns, rows=rows)
    ample = Console(width=10_000)
    if width >= TABLE_WIDTH or Measurement.get(ample, ample.options, made).maximum <= width:
        return made
    names = [column.lstrip(">") for column in columns]
    return "\n".join(_paragraph(names, row, width) for row in rows)


def _paragraph(names: Sequence[str], row: Sequence[str], width: int) -> str:
    """Return a row as text of lines that are no longer than so many characters, but for long words."""
    row = list(map(visible, row))
    parts = [
        f"{name} {cell}" if name else cell
        for name, cell in zip(names[1:], row[1:], strict=True)
        if cell not in ("", "–")
    ]
    return textwrap.fill(
        f"{'#' if names[0] == '#' else ''}{row[0]}: {', '.join(parts)}",
        width,
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is. Without a terminal it is wide: nothing is folded."""
    made = Console(stderr=stderr, markup=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made
