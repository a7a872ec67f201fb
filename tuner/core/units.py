"""Numbers that travel between machines, each with the finite range of what it counts.

A range counts on the wire and in files: whatever a message or a table has of these is refused outside
of it (`tuner.bounds.tightened`). Code of this program, and the database, are not checked.
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
    """From `low` to `high`; with `above` not `low` itself, with `open_ended` also the infinities."""

    low: float
    high: float
    above: bool = False
    open_ended: bool = False

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a number that says its range."""
        return _marked(handler(source), {"range": self})


class Repeated:
    """Marks a list of texts in which one may come twice, as lines of a file."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a list that says so."""
        return _marked(handler(source), {"repeated": True})


def _marked(schema: dict[str, Any], mark: dict[str, object]) -> dict[str, Any]:
    return {**schema, "metadata": {**schema.get("metadata", {}), **mark}}


REPEATED = Repeated()
LONGEST_S = 10 * 366 * 86_400.0
"""Ten years: no device, lease or window is instructed to last longer."""
Finite = Annotated[float, Range(-1e18, 1e18)]
"""A figure of any unit; a thousand of them squared are finite, too."""
Boundary = Annotated[float, Range(-1e19, 1e19, open_ended=True)]
"""The end of an interval, which may be open. JSON has no infinity: there it is a text."""
Watts = Annotated[float, Range(0.0, 1e9)]
"""A power: 1 GW is more than a data centre draws."""
Joules = Annotated[float, Range(-1e18, 1e18)]
"""An energy, or the difference of two: 1 GW over 30 years."""
Seconds = Annotated[float, Range(0.0, LONGEST_S, above=True)]
"""A length that a device is instructed to keep: NaN compares with nothing, so a wait for it never ends."""
Span = Annotated[float, Range(0.0, LONGEST_S)]
"""A length of time that may be none."""
Share = Annotated[float, Range(0.0, 1.0)]
Count = Annotated[int, Range(0, 2**53)]
Ordinal = Annotated[int, Range(0, 2**63 - 1)]
"""A revision, an attempt, a fencing token: what only grows, and fits a column."""
Priority = Annotated[int, Range(-1_000_000, 1_000_000)]
