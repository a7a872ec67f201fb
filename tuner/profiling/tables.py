"""Read a CSV file of measurements: its rows, and their cells as numbers."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core import InvalidInput

MEND = "correct or remove the row"
LEAST, MOST = 1e-12, 1e15
"""Figures outside this range are errors, and would overflow or vanish in an average."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row: its file and line, and its cells by column."""

    where: str
    cells: Mapping[str, str]

    def number(self, column: str, default: str = "") -> float:
        """Return a cell as a number from 0 to `MOST`; an empty one as `default`. Raises InvalidInput."""
        text = self.cells.get(column) or default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0.0):
            raise self.refused(f"{column} = {text!r} is not a finite number >= 0")
        if value > MOST:
            raise self.refused(f"{column} = {text!r} is above {MOST:g}")
        return value

    def positive(self, column: str) -> float:
        """Return a cell as a number from `LEAST` to `MOST`. Raises InvalidInput."""
        if (value := self.number(column)) < LEAST:
            raise self.refused(f"{column} = {self.cells[column]!r} must be clearly above zero")
        return value

    def count(self, column: str, default: str = "", least: int = 1) -> int:
        """Return a cell as an integer of at least `least`. Raises InvalidInput."""
        value = self.number(column, default)
        if value < least or not value.is_integer():
            raise self.refused(f"{column} = {self.cells[column]!r} is not an integer >= {least}")
        return int(value)

    def refused(self, why: str) -> InvalidInput:
        """Return the error of this row."""
        return InvalidInput(f"{self.where}: {why}", hint=MEND)


def read_rows(
    path: Path, needed: Sequence[str], hint: str = "", renamed: Mapping[str, str] | None = None
) -> list[CsvRow]:
    """Return the rows of a file with a header; `renamed` has other names for its columns.

    `hint` is the next step if a needed column is missing.

    Raises:
        InvalidInput: the file cannot be read or has no rows, a column is missing or there twice, or a row
            has another number of cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, skipinitialspace=True)
            columns = [(renamed or {}).get(name, name) for name in next(reader, [])]
            rows = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {path}: {why}", hint="name a CSV file in UTF-8") from None
    if missing := [name for name in needed if name not in columns]:
        first = f"name its columns {','.join(needed)} in the first line"
        raise InvalidInput(f"{path} lacks the columns {', '.join(missing)}", hint=hint or first)
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise InvalidInput(f"{path} has the column {twice[0]} twice", hint="remove one of them")
    if not rows:
        raise InvalidInput(f"{path} has no rows", hint="name a file with measurements")
    read = []
    for number, cells in rows:
        row = CsvRow(f"{path}, row {number}", dict(zip(columns, cells, strict=False)))
        if len(cells) != len(columns):
            raise row.refused("not as many cells as columns")
        read.append(row)
    return read
