"""What a program has printed: numbers by the key of its last line in JSON, or by a pattern."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import IO, Any

from tuner.core import MeasurementError, Metric, Quantity, Scope

TAIL_BYTES = 1 << 20
"""So much of the end of what a program prints is looked at."""
LAST_WORDS = 300


@dataclass(frozen=True, slots=True)
class Printed:
    """Where a number stands: at a key (`loss.final` goes in), or in a pattern's group, the last one."""

    key: str = ""
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class PrintedMetric:
    """A metric that is printed: its name, what it means, and where it stands."""

    name: str
    quantity: Quantity
    printed: Printed

    @property
    def metric(self) -> Metric:
        """The metric, of the program that prints it."""
        return Metric(self.name, scope=Scope.PROCESS, quantity=self.quantity)


def tail(output: IO[bytes]) -> str:
    """Return the end of what was printed to a file."""
    size = output.seek(0, 2)
    output.seek(max(0, size - TAIL_BYTES))
    return output.read().decode(errors="replace")


def last_words(text: str) -> str:
    """Return the end of a text, for a message."""
    return text.strip()[-LAST_WORDS:] or "it printed nothing"


def number(printed: Printed, text: str) -> float:
    """Return a number from what a program has printed. Raises MeasurementError."""
    raw, place = _by_pattern(printed.pattern, text) if printed.pattern else _by_key(printed, text)
    try:
        value = math.nan if isinstance(raw, bool) or raw is None else float(raw)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise MeasurementError(
            f"the program printed no number {place}: {last_words(text)}",
            hint="correct the pattern in the file, or let the program print it"
            if printed.pattern
            else f"let it print a JSON object with {printed.key!r} as its last line, "
            "or give a pattern in a file (command:/PATH/FILE.toml)",
        )
    return value


def _by_pattern(pattern: re.Pattern[str], text: str) -> tuple[Any, str]:
    matches = pattern.findall(text)
    return (matches[-1] if matches else None), f"that matches {pattern.pattern!r} says"


def _by_key(printed: Printed, text: str) -> tuple[Any, str]:
    place = f"at {printed.key!r} of its last line in JSON"
    node: Any = _last_object(text)
    for step in printed.key.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node, place


def _last_object(text: str) -> object:
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None
