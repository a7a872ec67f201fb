"""Lists on a terminal: one line a thing, whatever the width; no value is split.

A column's name may begin with marks: `>` aligns it to the right; `+` shows it only where every value of the
list fits in full; `~` shortens its values, at the end of a word. What does not fit even so is left out,
except for the first column: it has the name to type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from tuner.bounds import visible

GAP = "  "
SHORTEST = 10
"""A shortened column keeps this width."""
CUT = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its marks, and its values."""

    name: str
    right: bool
    optional: bool
    short: bool
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """The width of its widest value, or of its name."""
        return max(map(cell_len, (self.name, *self.values)))

    @property
    def filled(self) -> bool:
        """Whether it has a value."""
        return any(value not in ("", "–") for value in self.values)

    def narrowed(self, width: int) -> Column:
        """Return the column with its values shortened to a width."""
        return replace(self, values=tuple(shortened(value, width) for value in self.values))

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
    """Return the heading and a line for each row; None for the width shows every value in full."""
    values = zip(*(map(visible, row) for row in rows), strict=True)
    columns = [_column(name, tuple(of)) for name, of in zip(names, values, strict=True)]
    if width is not None:
        columns = _fitted(columns, width)
    return [GAP.join(cells).rstrip() for cells in zip(*(c.lines() for c in columns), strict=True)]


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


def _column(name: str, values: tuple[str, ...]) -> Column:
    bare = name.lstrip(">+~")
    marks = name[: len(name) - len(bare)]
    return Column(bare, ">" in marks, "+" in marks, "~" in marks, values)


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit: the first, then as many others as there is room for, in order.

    Optional ones come last, only where every value stays whole, and not where all are empty.
    """
    shown = [columns[0]]
    for column in columns[1:]:
        if not column.optional and _least([*shown, column]) <= width:
            shown.append(column)
    for column in columns[1:]:
        if column.optional and column.filled and _total([*shown, column]) <= width:
            shown.append(column)
    fitting = [column for column in columns if column in shown]
    for place in reversed(range(len(fitting))):
        over = _total(fitting) - width
        if over > 0 and fitting[place].short:
            room = max(SHORTEST, len(fitting[place].name), fitting[place].width - over)
            fitting[place] = fitting[place].narrowed(room)
    return fitting


def _least(columns: Sequence[Column]) -> int:
    """Return the width of columns that are shortened as far as they may be."""
    return _total([one.narrowed(SHORTEST) if one.short else one for one in columns])


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)
