"""What a program has printed: numbers by the key of its last line in JSON, or by a pattern."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import IO, Any

from tuner.core import LastObject, MeasurementError, Metric, PrintedNumber, Quantity, Scope, demand

TAIL_BYTES = 1 << 20
"""So much of the end of what a program prints is looked at."""
LAST_WORDS = 300
EDGES = frozenset("0123456789.,_eE+-")
"""The characters beside a match of which it may be only a part."""
NUMERIC = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d*)?")
LEAD = re.compile(r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|[^\\(\[])*(?=\()")
"""The part of a pattern before its group."""
OBJECT = re.compile(r'\s*\{\s*(?:["}]|$)')
"""What begins an object in JSON; a line like `{'loss': 1}` or `{name}` does not."""
NO_NUMBER = re.compile(r"\s*(?:[-+]?(?:nan|inf)|[-+]?[.,]?\d|$)", re.IGNORECASE)
"""What follows where a number is missing, or is not as the pattern expects."""


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


def whole(match: re.Match[str], group: str | int, later: str = "") -> str:
    """Return a group of a match. Raises MeasurementError where it is only a part of a number."""
    text, value, (start, end) = match.string, match[group], match.span(group)
    if later or text[max(0, start - 1) : start] in EDGES or text[end : end + 1] in EDGES:
        fact = PrintedNumber(
            text=value,
            before=text[text.rfind("\n", 0, start) + 1 : start],
            after=text[end:].partition("\n")[0],
            delimited=end < match.end(),
            later=later,
        )
        demand(*([fact] if NUMERIC.fullmatch(value) else []))
    return value


def last_match(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the group of a pattern's last match, None without one.

    Raises:
        MeasurementError: it is only a part of a number, or a later line has no number there.
    """
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one counts
        pass
    return None if last is None else whole(last, 1, _later(pattern, last, text))


def _by_pattern(pattern: re.Pattern[str], text: str) -> tuple[Any, str]:
    return last_match(pattern, text), f"that matches {pattern.pattern!r} says"


def _later(pattern: re.Pattern[str], last: re.Match[str], text: str) -> str:
    """Return a line after the last match that begins like one and has `nan`, a part or nothing there."""
    lead = LEAD.match(pattern.pattern)
    try:
        leads = list(re.finditer(lead[0] if lead else "", text[last.end() :]))
    except re.error:  # the group is within another construct
        return ""
    for one in leads:
        rest = text[last.end() + one.end() :].partition("\n")[0]
        if one[0].strip() and NO_NUMBER.match(rest):
            return f"{one[0]}{rest}"
    return ""


def _by_key(printed: Printed, text: str) -> tuple[Any, str]:
    place = f"at {printed.key!r} of its last line in JSON"
    node: Any = _last_object(text)
    for step in printed.key.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node, place


def _last_object(text: str) -> object:
    for line in reversed(text.splitlines()):
        if OBJECT.match(line):
            try:
                return json.loads(line)
            except ValueError as error:
                demand(LastObject(line, str(error)))
    return None
