"""The output of commands: one JSON document on stdout, or lines."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console

from tuner import files
from tuner.bounds import CONTROL
from tuner.cli import listing
from tuner.core import StoreError

PIPE_WIDTH = 240

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def plain(value: object) -> Plain:
    """Return a value as a strict JSON value. A number that is not finite becomes null.

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
    if is_dataclass(value) and not hasattr(value, "model_fields_set"):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    # A message: iterating gives its fields. `protocol` is for the wire only.
    items: Iterable[tuple[str, object]] = value  # type: ignore[assignment]
    return {name: plain(item) for name, item in items if name != "protocol"}


def json_text(value: object) -> str:
    """Return a value as one JSON document."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)
    # json escapes only characters below 0x20. The line ends are from its indentation, not from values.
    return "\n".join(CONTROL.sub(_escaped, line) for line in text.split("\n"))


def _escaped(match: re.Match[str]) -> str:
    """Return the JSON escape of the matched character."""
    return f"\\u{ord(match[0]):04x}"


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    # Characters outside the terminal's encoding are escaped.
    wide = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json_text(value)
    typer.echo(text if wide else json.dumps(json.loads(text), indent=2))


def write_text(output: Path, text: str) -> None:
    """Write the file of `--output` completely or not at all, into an existing folder.

    Only its owner may read a new file.

    Raises:
        StoreError: the folder does not exist, or the write fails.
    """
    if not output.parent.is_dir():
        raise StoreError(
            f"cannot write {output}: there is no such folder", hint="choose another --output"
        )
    files.write(output, text, 0o600, keep_mode=True)


def list_width() -> int | None:
    """Return the width of a list in columns: the terminal's or $COLUMNS; None in a pipe."""
    screen = console()
    return screen.width if screen.is_terminal or "COLUMNS" in os.environ else None


def print_list(screen: Console, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list with every value in full; `>` before a column's name aligns it to the right."""
    for line in listing.lines(names, rows):
        screen.print(line, soft_wrap=True)


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged. Without a terminal it is wide, so no line is folded."""
    terminal = Console(stderr=stderr, markup=False, highlight=False)
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal.width = PIPE_WIDTH
    return terminal
