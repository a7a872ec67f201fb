"""Numbers in a program's output, found by a key of its last JSON line or by a pattern."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import IO, Any

from tuner.core import LastObject, MeasurementError, Metric, PrintedNumber, Quantity, Scope, demand
from tuner.foreign_bodies import parsed

TAIL_BYTES = 1 << 20
"""The size of the searched part at the end of a program's output, in bytes."""
LAST_WORDS = 300
NUMERIC = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d*)?")
LEAD = re.compile(r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|[^\\(\[])*(?=\()")
"""The part of a pattern before its group."""
OBJECT = re.compile(r'\s*\{\s*(?:["}]|$)')
"""The start of a line with a JSON object; lines like `{'loss': 1}` or `{name}` do not match."""
NO_NUMBER = re.compile(
    r"\s*(?:[-+]?(?:nan|inf)|(?:none|null|n/?a)\b|[-*?#]+(?:\s|$)|[-+]?[.,]?\d|[\w.]*[(\[]|overflow|$)",
    re.IGNORECASE,
)
"""The text after a pattern's lead if the number is missing there, or not as the pattern expects, as in
`tensor(nan)` or `np.float64(0.3)`."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The place of a printed number: a key of the last JSON line, or the group of a pattern's last match.

    A key like `loss.final` names a nested entry.
    """

    key: str = ""
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class PrintedMetric:
    """A printed metric: its name, its quantity, and the place of its number."""

    name: str
    quantity: Quantity
    printed: Printed

    @property
    def metric(self) -> Metric:
        """The metric, with the scope of the program's process."""
        return Metric(self.name, scope=Scope.PROCESS, quantity=self.quantity)


def tail(output: IO[bytes]) -> str:
    """Return the last `TAIL_BYTES` bytes of the output in a file, as text."""
    size = output.seek(0, 2)
    output.seek(max(0, size - TAIL_BYTES))
    return output.read().decode(errors="replace")


def last_words(text: str) -> str:
    """Return the last `LAST_WORDS` characters of a text, for a message."""
    return text.strip()[-LAST_WORDS:] or "it printed nothing"


def number(printed: Printed, text: str, unit: str = "") -> float:
    """Return a number from a program's output. Raises MeasurementError: there is no finite number."""
    if printed.pattern is None:
        raw, place = _by_key(printed, text)
    else:
        raw = last_match(printed.pattern, text, unit)
        place = f"that matches {printed.pattern.pattern!r} says"
    if (value := finite(raw)) is None:
        raise MeasurementError(
            f"the program printed no number {place}: {last_words(text)}",
            hint="correct the pattern in the file, or let the program print it"
            if printed.pattern
            else f"let it print a JSON object with {printed.key!r} as its last line, "
            "or give a pattern in a file (command:/PATH/FILE.toml)",
        )
    return value


def finite(raw: Any) -> float | None:  # noqa: ANN401  JSON, or a text
    """Return a finite number; None for anything else, also for a boolean or an integer of 400 digits."""
    try:
        value = math.nan if isinstance(raw, bool) or raw is None else float(raw)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def whole(match: re.Match[str], group: str | int, unit: str = "", later: str = "") -> str:
    """Return a group of a match. Raises MeasurementError: it is only a part of a number.

    `unit` is the declared one. `later` is a later line without a number at the same place, which is an
    error, too.
    """
    text, value, (start, end) = match.string, match[group], match.span(group)
    if value and NUMERIC.fullmatch(value):
        demand(
            PrintedNumber(
                text=value,
                before=text[text.rfind("\n", 0, start) + 1 : start],
                after=text[end:].partition("\n")[0],
                delimited=end < match.end(),
                unit=unit,
                later=later,
                lead=text[match.start() : start],
            )
        )
    return value


def last_match(pattern: re.Pattern[str], text: str, unit: str = "") -> str | None:
    """Return the group of a pattern's last match; None without a match.

    Raises:
        MeasurementError: the group is only a part of a number, or a later line has no number there.
    """
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one counts
        pass
    return None if last is None else whole(last, 1, unit, _later(pattern, last, text))


def _later(pattern: re.Pattern[str], last: re.Match[str], text: str) -> str:
    """Return a line after the last match that has the pattern's lead but no complete number behind it.

    Such a line has `nan`, a part of a number, or nothing there. Empty if there is no such line.
    """
    lead = LEAD.match(pattern.pattern)
    try:
        leads = list(re.finditer(lead[0] if lead else "", text[last.end() :]))
    except re.error:  # the group is nested in another construct
        return ""
    for one in leads:
        rest = text[last.end() + one.end() :].partition("\n")[0]
        if one[0].strip() and NO_NUMBER.match(rest):
            return f"{one[0]}{rest}"
    return ""


def _by_key(printed: Printed, text: str) -> tuple[Any, str]:
    """Return the value at a key of the last JSON line, and a phrase for its place."""
    place = f"at {printed.key!r} of its last line in JSON"
    node: Any = _last_object(text)
    for step in printed.key.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node, place


def _last_object(text: str) -> object:
    """Return the JSON object of the last line that starts like one; None without such a line."""
    for line in reversed(text.splitlines()):
        if OBJECT.match(line):
            try:
                return parsed(line)
            except ValueError as error:
                demand(LastObject(line, str(error)))
    return None
