"""The output of commands: one JSON document on stdout, or lines and lists.

A list has one line per entry at any width. Its columns are in the order of their importance. A column's
name may begin with marks. `>` aligns it to the right. `+` shows it only if every value of the list fits in
full. `~` shortens its values at the end of a word. `=` is for ids, which are shortened in the middle. `!`
is for values that are useless if cut, such as commands: if not all of them fit, all are printed below
their row. Other columns that do not fit are hidden, and `Listing.hidden` counts them. The first column is
always shown.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from pathlib import Path

import typer
from rich.cells import cell_len
from rich.console import Console

from tuner import files
from tuner.bounds import CONTROL, visible
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
    lines = (CONTROL.sub(lambda c: f"\\u{ord(c[0]):04x}", line) for line in text.split("\n"))
    return "\n".join(lines)


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    # Characters outside the terminal's encoding are escaped.
    wide = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json_text(value)
    typer.echo(text if wide else json.dumps(json.loads(text), indent=2))


def write_text(output: Path, text: str, option: str = "--output", mode: int = 0o600) -> None:
    """Write the file of an option completely or not at all, into an existing folder.

    A new file gets `mode` less the umask: by default only its owner may read it. A pipe is written to.

    Raises:
        StoreError: the folder does not exist, or the write fails.
    """
    if not output.parent.is_dir():
        raise StoreError(
            f"cannot write {output}: there is no such folder", hint=f"choose another {option}"
        )
    if output.exists() and not output.is_file() and not output.is_dir():
        output.write_text(text, "utf-8")  # replacing it would remove the device
    else:
        files.write(output, text, mode, keep_mode=True)


def list_width() -> int | None:
    """Return the width of a list in columns: the terminal's or $COLUMNS; None in a pipe."""
    screen = console()
    return screen.width if screen.is_terminal or "COLUMNS" in os.environ else None


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged. Without a terminal it is wide, so no line is folded."""
    terminal = Console(stderr=stderr, markup=False, highlight=False)
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal.width = PIPE_WIDTH
    return terminal


GAP = "  "
SHORTEST = 12
"""A column shortened at the end of a word keeps this width: `the baseline` stays whole."""
SHORTEST_ID = 20
"""A column of ids keeps this width: host names may differ at either end."""
CUT = "…"
NOTHING = ("", "–")
BELOW = "    "
"""Indentation of a value that is printed below its row."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list as text: its heading, one entry per row, and the number of hidden columns with values."""

    head: str
    body: tuple[str, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its marks, and its values."""

    name: str
    right: bool
    optional: bool
    short: bool
    id: bool
    whole: bool
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """The width of its widest value, or of its name."""
        return max(map(cell_len, (self.name, *self.values)))

    @property
    def filled(self) -> bool:
        """Whether it has a value."""
        return any(value not in NOTHING for value in self.values)

    @property
    def least(self) -> int:
        """The width it can be shortened to."""
        if self.short or self.id:
            return self.narrowed(SHORTEST_ID if self.id else SHORTEST).width
        return self.width

    def narrowed(self, width: int) -> Column:
        """Return the column with its values shortened to a width."""
        cut = middle if self.id else shortened
        return replace(self, values=tuple(cut(value, width) for value in self.values))

    def lines(self) -> list[str]:
        """Return its name and values, padded to one width."""
        width = self.width
        padded = []
        for text in (self.name, *self.values):
            room = " " * (width - cell_len(text))
            padded.append(room + text if self.right else text + room)
        return padded


def lines(
    names: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """Return the heading and an entry for each row; None for the width shows every value in full."""
    made = listing(names, rows, width)
    return [made.head, *made.body]


def listing(
    names: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> Listing:
    """Return a list of rows as text; None for the width shows every value in full."""
    values = zip(*(map(visible, row) for row in rows), strict=True)
    columns = [_column(name, tuple(of)) for name, of in zip(names, values, strict=True)]
    shown = columns if width is None else _fitted(columns, width)
    below = () if width is None else [c for c in columns if c.whole and c not in shown and c.filled]
    head, *body = (
        GAP.join(cells).rstrip() for cells in zip(*(c.lines() for c in shown), strict=True)
    )
    for column in below:
        added = (f"\n{BELOW}{column.name}: {v}" if v not in NOTHING else "" for v in column.values)
        body = [entry + more for entry, more in zip(body, added, strict=True)]
    kept = {column.name for column in (*shown, *below)}
    return Listing(head, tuple(body), sum(c.filled and c.name not in kept for c in columns))


def shortened(text: str, width: int) -> str:
    """Return a text of at most this width, cut at the end of a word; a longer first word stays whole."""
    if cell_len(text) <= width:
        return text
    first, *rest = text.split(" ")
    short = first
    for word in rest:
        if cell_len(f"{short} {word} {CUT}") > width:
            break
        short = f"{short} {word}"
    return f"{short} {CUT}" if short != text else text


def middle(text: str, width: int) -> str:
    """Return a text of at most this width, its middle cut out, as names differ at their ends."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}{CUT}{text[len(text) - end :]}"


def folded(texts: Sequence[str], width: int | None) -> list[str]:
    """Return texts as lines of at most this width; a text is not broken. None for the width: one line."""
    lines = list(texts[:1])
    for text in texts[1:]:
        if width is None or cell_len(lines[-1] + GAP + text) <= width:
            lines[-1] += GAP + text
        else:
            lines.append(text)
    return lines


def _column(name: str, values: tuple[str, ...]) -> Column:
    """Return a column from its name with marks, and its values."""
    bare = name.lstrip(">+~=!")
    marks = name[: len(name) - len(bare)]
    right, optional, short, id_, whole = (mark in marks for mark in ">+~=!")
    return Column(bare, right, optional, short, id_, whole, values)


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit: the first, then as many others as the width allows, in order.

    Optional columns are added last, if they have a value and every shown value still fits in full. If
    the columns are too wide, the last ones are shortened first.
    """
    shown = [columns[0]]
    for column in columns[1:]:
        if not column.optional and _least([*shown, column]) <= width:
            shown.append(column)
    if any(c.whole and c.filled and c not in shown for c in columns if not c.optional):
        shown = [column for column in shown if not column.whole]  # all of them, or none
    for column in columns[1:]:
        if column.optional and column.filled and _total([*shown, column]) <= width:
            shown.append(column)
    fitting = [column for column in columns if column in shown]
    for place in reversed(range(len(fitting))):
        over = _total(fitting) - width
        if over > 0:
            least = fitting[place].least
            fitting[place] = fitting[place].narrowed(max(least, fitting[place].width - over))
    return fitting


def _least(columns: Sequence[Column]) -> int:
    """Return the width of the columns when each is at its least width."""
    return sum(column.least for column in columns) + len(GAP) * (len(columns) - 1)


def _total(columns: Sequence[Column]) -> int:
    """Return the width of columns with the gaps between them."""
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)
