"""Plans: what to set in which situation. One row is plain tuning; several follow the load."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.core.knobs import Setting, setting_key
from tuner.core.units import Boundary, Share
from tuner.errors import InvalidInput

__all__ = [
    "ANYWHERE",
    "CYCLE",
    "HIGH",
    "LOW",
    "NO_TABLE",
    "Context",
    "Plan",
    "Row",
    "Signal",
    "as_before",
]

Context = Mapping[str, float]
"""Values of signals, by name: `arrival_rate_per_s`, `requests_in_system`, `decoding_requests`."""

ANYWHERE: Context = MappingProxyType({})
"""The context of whatever runs: it is neither requested nor reported."""


LOW, HIGH, CYCLE = "_low", "_high", "cycle_s"
"""A load that goes up and down: two numbers of a signal, and the seconds of one round between them."""


NO_TABLE = "cannot go by a table itself"
"""In the reason of a trial of a plan that failed since its workload switches no rows."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of a plan: the load of a workload, or a price, or the time of day.

    `askable` where the agent owns the load generator: a trial may then ask for a value of it. `followed`
    where the workload takes a plan by it as its own table.
    """

    name: str
    unit: str = "1"
    askable: bool = False
    followed: bool = False


def as_before(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a plan without empty newer fields, as earlier releases read it."""
    new = {"bursts"} if plan["columns_by"] else {"bursts", "column_below", "column_at"}
    rows = [{n: v for n, v in row.items() if v or n not in new} for row in plan["rows"]]
    return {n: v for n, v in plan.items() if v or n != "columns_by"} | {"rows": rows}


@dataclass(frozen=True, slots=True)
class Row:
    """Below `below` of the plan's quantity (and not in an earlier row) this setting is held.

    `gain` is the share of time that it is predicted to save there, against staying at a neighbouring
    row; a change of row is worth its cost sooner the more it gains. 1 where it is not predicted. `at`
    is the value at which the row was decided, and is to be confirmed and watched; None for none. In a table
    the row is a cell: `column_below` (None: no bound) and `column_at` are the same of the second signal.
    `bursts` are the levels of `Bursts` above `below` up to which an eager plan holds the row; without them
    it holds the row while the load is below `below`.
    """

    below: Boundary
    setting: Setting
    gain: Share = 1.0
    at: float | None = None
    column_below: Boundary | None = None
    column_at: float | None = None
    bursts: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered ranges of one context quantity, each with its setting; or a table by two.

    The last row's `below` is infinite, so every situation has a row. `hysteresis` is the share by
    which a boundary must be overstepped before the row changes. Where limits hang on the load (`eager`)
    that is so on the way down alone: a higher row is taken once its load is seen, whatever that costs. A
    row of such a plan ends just above its own load, and is taken again at that load.

    A table has a second signal, `columns_by`. Its rows are in order of columns; each column is a plan by
    the first signal, with boundaries of its own. It is always eager.

    Raises:
        InvalidInput: no rows, boundaries that do not ascend to infinity, a row decided at a value
            that is not its own, a hysteresis or gain outside 0 … 1, or columns without a second signal.
    """

    rows: tuple[Row, ...]
    by: str = ""
    hysteresis: Share = 0.1
    eager: bool = False
    columns_by: str = ""

    def __post_init__(self) -> None:
        if self.columns_by:
            if not (self.rows and self.eager and self.by) or self.columns_by == self.by:
                raise InvalidInput("a table must have rows, be eager and go by two signals")
            _ = self.columns, self.across  # Each is a plan, and checked as one.
            return
        bounds = [row.below for row in self.rows]
        ascending = all(a < b for a, b in itertools.pairwise(bounds))
        if not bounds or not ascending or bounds[-1] != math.inf:
            raise InvalidInput("a plan's boundaries must ascend and end at infinity")
        if len(bounds) > 1 and not self.by:
            raise InvalidInput("a plan of several rows must name the signal that selects a row")
        if any(not (row.column_below is row.column_at is None) for row in self.rows):
            raise InvalidInput("a plan with columns must name the signal that selects a column")
        if not 0.0 <= self.hysteresis < 1.0:
            raise InvalidInput(f"a plan's hysteresis cannot be {self.hysteresis}")
        if not all(0.0 <= row.gain <= 1.0 for row in self.rows):
            raise InvalidInput("a row's gain must be a share from 0 to 1")
        lows = [-math.inf, *bounds]
        for low, row in zip(lows, self.rows, strict=False):
            if row.at is not None and not (self.by and low <= row.at < row.below):
                raise InvalidInput(
                    f"a row from {low:g} to {row.below:g} does not include its own load {row.at:g}"
                )

    @classmethod
    def single(cls, setting: Setting) -> Plan:
        """Return the plan that holds one setting whatever the situation."""
        return cls((Row(math.inf, setting),))

    @classmethod
    def table(cls, columns_by: str, columns: Sequence[tuple[float, float | None, Plan]]) -> Plan:
        """Return the table of columns: the upper bound of each, the value it was decided at, its plan."""
        rows = tuple(
            replace(row, column_below=None if below == math.inf else below, column_at=at)
            for below, at, plan in columns
            for row in plan.rows
        )
        by = next((plan.by for _, _, plan in columns if plan.by), "")
        return cls(rows, by, eager=True, columns_by=columns_by)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that it goes by: none, one, or two of a table."""
        return tuple(name for name in (self.by, self.columns_by) if name)

    @property
    def columns(self) -> tuple[Plan, ...]:
        """The columns of a table, each as a plan by the first signal; of any other plan itself."""
        if not self.columns_by:
            return (self,)
        return tuple(
            Plan(
                tuple(replace(row, column_below=None, column_at=None) for row in column),
                self.by,
                self.hysteresis,
                self.eager,
            )
            for column in self._cells
        )

    @property
    def across(self) -> Plan:
        """The columns of a table as the rows of a plan by the second signal, without settings."""
        firsts = [cells[0] for cells in self._cells]
        bounds = [math.inf if row.column_below is None else row.column_below for row in firsts]
        rows = (Row(below, {}, at=row.column_at) for below, row in zip(bounds, firsts, strict=True))
        return Plan(tuple(rows), self.columns_by, self.hysteresis, self.eager)

    @property
    def _cells(self) -> list[list[Row]]:
        """The rows of each column."""
        place = operator.attrgetter("column_below", "column_at")
        return [list(cells) for _, cells in itertools.groupby(self.rows, place)]

    def cell(self, row: int) -> tuple[int, int]:
        """Return the column of a row by its index, and its place in that column."""
        for column, cells in enumerate(self._cells):
            if row < len(cells):
                return column, row
            row -= len(cells)
        raise IndexError(f"a plan of {len(self.rows)} rows")

    def index(self, column: int, place: int) -> int:
        """Return the index of the row at a place in a column."""
        return sum(map(len, self._cells[:column])) + place

    def chief(self, baseline: Setting) -> Setting:
        """Return the setting that represents a plan: of those beside the baseline the highest load's."""
        others = [r.setting for r in self.rows if setting_key(r.setting) != setting_key(baseline)]
        return others[-1] if others else self.rows[-1].setting

    def row_of(self, setting: Setting) -> int | None:
        """Return the index of the first row with a setting, None where there is none."""
        key = setting_key(setting)
        return next((i for i, r in enumerate(self.rows) if setting_key(r.setting) == key), None)

    def context(self, row: Row) -> Context:
        """Return the load that one of its rows was decided at, which may be any."""
        if row.at is None:
            return ANYWHERE
        own = {self.by: row.at}
        return own if row.column_at is None else own | {self.columns_by: row.column_at}

    def crossing(self, low: float, seconds: float) -> Context:
        """Return the load that goes from `low` to its last row's and back in that time."""
        high = max(row.at for row in self.rows if row.at is not None)
        return {f"{self.by}{LOW}": low, f"{self.by}{HIGH}": high, CYCLE: seconds}

    def row(self, context: Context, current: int | None = None) -> int:
        """Return the index of the row for a situation, staying on `current` near its boundaries.

        A situation that does not tell the plan's quantity keeps the current row, or takes the last,
        which is made for the highest load. A table selects the column first, then the row in it.
        """
        if self.columns_by:
            before, place = (None, None) if current is None else self.cell(current)
            column = self.across.row(context, before)
            return self.index(
                column, self.columns[column].row(context, place if column == before else None)
            )
        if len(self.rows) == 1:
            return 0
        value = context.get(self.by)
        if value is None:
            return current if current is not None else len(self.rows) - 1
        if current is not None and self._within(value, current):
            return current
        return next(i for i, row in enumerate(self.rows) if value < row.below)

    def _within(self, value: float, row: int) -> bool:
        above = 1.0 if self.eager else 1.0 + self.hysteresis
        return self._lower(row) <= value < self.rows[row].below * above

    def _lower(self, row: int) -> float:
        """Return the value below which a row is left: never below the own load of the row before."""
        if row == 0:
            return -math.inf
        before = self.rows[row - 1]
        lower = before.below * (1.0 - self.hysteresis)
        if not self.eager or before.at is None:
            return lower
        return max(lower, (before.at + before.below) / 2.0)
