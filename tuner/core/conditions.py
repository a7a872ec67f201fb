"""When a knob has an effect: a comparison of another knob's value, written `workers > 0`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tuner.errors import InvalidInput

__all__ = ["Condition"]

ORDERS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)
"""Comparisons of numbers; `==` and `!=` compare any values."""

WRITTEN = re.compile(r"\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*([^\s<>=!](?:.*\S)?)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison under which a knob has an effect: `knob` is the other knob, `value` is as written.

    Raises:
        InvalidInput: the operator is unknown, or orders by a text, as `mode < fast` does.
    """

    knob: str
    op: str
    value: str

    def __post_init__(self) -> None:
        if self.op in ORDERS and _number(self.value) is None:
            raise InvalidInput(
                f"the condition {str(self)!r} compares with {self.value!r}, which is not a number",
                hint=f"compare with a number, or write {self.knob} == {self.value}",
            )
        if self.op not in (*ORDERS, "==", "!="):
            raise InvalidInput(
                f"a condition cannot compare by {self.op!r}", hint="use < <= > >= == or !="
            )

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition such as `workers > 0` or `mode == fast`. Raises InvalidInput."""
        match = WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidInput(
                f"cannot read the condition {text.strip()!r}",
                hint="write a knob, one of < <= > >= == !=, and a value: workers > 0",
            )
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"{self.knob} {self.op} {self.value}"

    def holds(self, value: bool | float | str) -> bool:
        """Return whether the condition holds at a value of the other knob; a text has no order."""
        own, other = _number(value), _number(self.value)
        if self.op in ORDERS:
            return own is not None and other is not None and ORDERS[self.op](own, other)
        same = str(value) == self.value if own is None or other is None else own == other
        if isinstance(value, bool):
            same = str(value).lower() == self.value.lower()
        return same if self.op == "==" else not same


def _number(value: bool | float | str) -> float | None:
    """Return a value as a number, None for a switch or a text that is not a number."""
    try:
        return None if isinstance(value, bool) else float(value)
    except ValueError:
        return None
