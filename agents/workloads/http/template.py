"""Templates of calls and files: a value, or a whole table of values by the load, fills placeholders."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from tuner.core import ConfigError, Plan, Value
from tuner.typed_toml import Filled, Table

VALUE, TABLE = "{value}", "{table}"
FIRST, LAST = "{first}", "{last}"
"""Placeholders in a template: the value, the table, and the load range of one of its rows."""
PLACE = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True, kw_only=True)
class LoadTable(Table):
    """A table by which a service itself adapts a knob to the load: rows of a load range and a value.

    `row` is one row as JSON; rows that are objects are merged into one object, others form a list.
    The load is a whole number from 1 to `most`, called `by` in plans.
    """

    by: Filled
    row: Any
    most: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        demand_place("row of table", self.row, VALUE)

    def rows(self, ranges: Sequence[tuple[int, int, Value]]) -> Any:  # noqa: ANN401
        """Return the table of some ranges."""
        rows = [
            filled(self.row, {FIRST: first, LAST: last, VALUE: value})
            for first, last, value in ranges
        ]
        if isinstance(self.row, dict):
            return {key: inner for row in rows for key, inner in row.items()}
        return rows

    def single(self, value: Value) -> Any:  # noqa: ANN401
        """Return the table with one value for every load."""
        return self.rows([(1, self.most, value)])

    def plan(self, plan: Plan, knob: str) -> Any:  # noqa: ANN401
        """Return a plan as a table of ranges in whole numbers; a row ends before its boundary."""
        ranges, first = [], 1
        for row in plan.rows:
            last = self.most if row.below > self.most else math.ceil(row.below) - 1
            if first <= last:
                ranges.append((first, last, row.setting[knob]))
            first = max(first, last + 1)
        return self.rows(ranges)


def filled(template: Any, places: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a template with values for its placeholders; keys become the values' text."""
    if isinstance(template, dict):
        return {str(places.get(key, key)): filled(inner, places) for key, inner in template.items()}
    if isinstance(template, list):
        return [filled(inner, places) for inner in template]
    return places.get(template, template) if isinstance(template, str) else template


def demand_place(where: str, template: object, place: str) -> None:
    """Raise ConfigError unless a template has a placeholder."""
    if place not in places_in(template):
        raise ConfigError(f'the {where} has no "{place}" in it')


def places_in(template: Any) -> set[str]:  # noqa: ANN401
    """Return the placeholders of a template."""
    if isinstance(template, dict):
        return places_in(list(template)) | places_in(list(template.values()))
    if isinstance(template, list):
        return {place for inner in template for place in places_in(inner)}
    return {template} if isinstance(template, str) and PLACE.fullmatch(template) else set()
