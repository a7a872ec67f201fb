"""Types of numbers that are sent between machines, each with a finite range.

A range applies to messages and files: a number outside its range is refused (`tuner.bounds.tightened`).
Values made by this program, or read from the database, have no range. A text is nowhere a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

__all__ = [
    "Boundary",
    "Count",
    "Finite",
    "Joules",
    "LONGEST_S",
    "Ordinal",
    "Priority",
    "REPEATED",
    "Range",
    "Seconds",
    "Share",
    "Span",
    "Watts",
]


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`; `above` excludes `low`, `open_ended` includes both infinities."""

    low: float
    high: float
    above: bool = False
    open_ended: bool = False

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a number, marked with this range. It refuses `true` and "1e9"."""
        strict = {} if self.open_ended else {"strict": True}  # JSON has an infinity as a text
        return _marked({**handler(source), **strict}, {"range": self})


class Repeated:
    """The mark of a list in which a text may appear twice, as the lines of a file may."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a list with this mark."""
        return _marked(handler(source), {"repeated": True})


def _marked(schema: dict[str, Any], mark: dict[str, object]) -> dict[str, Any]:
    """Return a schema with a mark in its metadata, where `tuner.bounds.tightened` reads it."""
    return {**schema, "metadata": {**schema.get("metadata", {}), **mark}}


REPEATED = Repeated()
LONGEST_S = 10 * 366 * 86_400.0
"""Ten years: the longest time that a message or a file can give for a hold, a lease or a window."""
Finite = Annotated[float, Range(-1e18, 1e18)]
"""A figure of any unit; the sum of a thousand of their squares is finite, too."""
Boundary = Annotated[float, Range(-1e19, 1e19, open_ended=True)]
"""The end of an interval, which may be infinite. In JSON, which has no infinity, it is a text then."""
Watts = Annotated[float, Range(0.0, 1e9)]
"""A power: 1 GW is more than a data centre draws."""
Joules = Annotated[float, Range(-1e18, 1e18)]
"""An energy, or the difference of two: 1 GW over 30 years."""
Seconds = Annotated[float, Range(0.0, LONGEST_S, above=True)]
"""A length of time that a device has to keep. NaN is refused: a wait for it would never end."""
Span = Annotated[float, Range(0.0, LONGEST_S)]
"""A length of time that may be 0."""
Share = Annotated[float, Range(0.0, 1.0)]
Count = Annotated[int, Range(0, 2**53)]
Ordinal = Annotated[int, Range(0, 2**63 - 1)]
"""A revision, an attempt or a fencing token: a number that only grows, and fits a database column."""
Priority = Annotated[int, Range(-1_000_000, 1_000_000)]
