"""Plans: the setting to hold at each load. A plan of one row holds one setting; several follow the load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tuner.core.knobs import Setting, render_setting, setting_key
from tuner.core.quantities import Boundary, Share
from tuner.errors import InvalidInput

Context = Mapping[str, float]
"""Values of signals, by name: `arrival_rate_per_s`, `requests_in_system`, `decoding_requests`."""

ANYWHERE: Context = MappingProxyType({})
"""The context of any load: a trial requests no value, and a window reports none."""


LOW, HIGH, CYCLE = "_low", "_high", "cycle_s"
"""Names for a load that goes up and down: suffixes for its lowest and its highest value, and the length of
one cycle in seconds."""


NO_TABLE = "cannot go by a table itself"
"""Part of the reason of a failed trial of a plan: the workload does not switch rows itself."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of a plan: the load of a workload, or a price.

    It is `askable` if the agent owns the load generator: then a trial may request a value of it. It is
    `followed` if the workload accepts a plan by it as its own table.
    """

    name: str
    unit: str = "1"
    askable: bool = False
    followed: bool = False


def refuse_two_signals(plan_by: str) -> None:
    """Raise InvalidInput if a plan names two signals: `plan_by` separates them by a comma."""
    first, *others = plan_by.split(",")
    if others:
        raise InvalidInput(
            f"plan_by cannot be {plan_by!r}: a plan goes by one signal",
            hint=f"give --plan-by one signal: {first}",
        )


def refuse_columns(plan: Any) -> Any:  # noqa: ANN401  a message may have anything there
    """Return the document of a plan. Raises InvalidInput: it names two signals."""
    if isinstance(plan, Mapping) and plan.get("columns_by"):
        refuse_two_signals(f"{plan.get('by')},{plan['columns_by']}")
    return plan


def refuse_hours(plan: Plan) -> Plan:
    """Return a plan to hold. Raises InvalidInput: it is by the hour, which no agent follows any more."""
    if plan.by == "hour":
        raise InvalidInput(
            "a plan by the hour is not supported any more",
            hint="stop its study, and create it again",
        )
    return plan


@dataclass(frozen=True, slots=True)
class Row:
    """A range of a plan's signal, and the setting held in it: below `below`, and not in an earlier row.

    `gain` is the predicted saving in this range against staying at a neighbouring row, as a share; 1 if it
    is not predicted. The larger it is, the sooner a change of row pays for its cost. `at` is the value at
    which the row was decided and has to be confirmed and watched; None if there is no such value.
    """

    below: Boundary
    setting: Setting
    gain: Share = 1.0
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered ranges of one signal, `by`, each with its setting.

    The last row's `below` is infinite, so every load has a row. `hysteresis` is the share by which a load
    must pass a boundary before the row changes. A plan is `eager` if its limits depend on the load. Its
    hysteresis applies on the way down only: a higher row is taken as soon as its load is seen, at any cost.
    A row of an eager plan ends just above the load at which it was decided, and is taken again at that
    load.

    Raises:
        InvalidInput: no rows, boundaries that do not ascend to infinity, several rows without a signal, a
            row decided at a value outside its range, or a hysteresis or gain outside 0 … 1.
    """

    rows: tuple[Row, ...]
    by: str = ""
    hysteresis: Share = 0.1
    eager: bool = False

    def __post_init__(self) -> None:
        bounds = [row.below for row in self.rows]
        ascending = all(a < b for a, b in itertools.pairwise(bounds))
        if not bounds or not ascending or bounds[-1] != math.inf:
            raise InvalidInput("a plan's boundaries must ascend and end at infinity")
        if len(bounds) > 1 and not self.by:
            raise InvalidInput("a plan of several rows must name the signal that selects a row")
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
        """Return the plan that holds one setting at every load."""
        return cls((Row(math.inf, setting),))

    def chief(self, baseline: Setting) -> Setting:
        """Return the setting that represents the plan: the highest load's that is not the baseline."""
        others = [r.setting for r in self.rows if setting_key(r.setting) != setting_key(baseline)]
        return others[-1] if others else self.rows[-1].setting

    @property
    def in_words(self) -> str:
        """The plan as text: its setting, or each setting with the value from which it applies."""
        if len(self.rows) == 1:
            return render_setting(self.rows[0].setting)
        *lower, last = self.rows
        spans = [f"{self.by} below {row.below:g}: {render_setting(row.setting)}" for row in lower]
        return "; ".join([*spans, f"else {render_setting(last.setting)}"])

    def row_of(self, setting: Setting) -> int | None:
        """Return the index of the first row with this setting; None if no row has it."""
        key = setting_key(setting)
        return next((i for i, r in enumerate(self.rows) if setting_key(r.setting) == key), None)

    def context(self, row: Row) -> Context:
        """Return the load at which a row was decided; `ANYWHERE` if the row has none."""
        if row.at is None:
            return ANYWHERE
        return {self.by: row.at}

    def crossing(self, low: float, seconds: float) -> Context:
        """Return the load that goes from `low` to the highest row's load and back in these seconds."""
        high = max(row.at for row in self.rows if row.at is not None)
        return {f"{self.by}{LOW}": low, f"{self.by}{HIGH}": high, CYCLE: seconds}

    def row(self, context: Context, current: int | None = None) -> int:
        """Return the index of the row for a context; near its boundaries the `current` row is kept.

        A context without the plan's signal keeps the current row. Without a current row, too, it gets the
        last one, which is made for the highest load.
        """
        if len(self.rows) == 1:
            return 0
        value = context.get(self.by)
        if value is None:
            return current if current is not None else len(self.rows) - 1
        if current is not None and self._within(value, current):
            return current
        return next(i for i, row in enumerate(self.rows) if value < row.below)

    def _within(self, value: float, row: int) -> bool:
        """Return whether a value of the signal keeps a row, with its hysteresis."""
        above = 1.0 if self.eager else 1.0 + self.hysteresis
        return self._lower(row) <= value < self.rows[row].below * above

    def _lower(self, row: int) -> float:
        """Return the value below which a row is left; in an eager plan above the load of the row before."""
        if row == 0:
            return -math.inf
        before = self.rows[row - 1]
        lower = before.below * (1.0 - self.hysteresis)
        if not self.eager or before.at is None:
            return lower
        return max(lower, (before.at + before.below) / 2.0)
