"""Operators' files on this host: commands, paths, knobs, metrics, and numbers in a program's output.

A printed number is found by a JSON key or a pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from agents.host.http.local_http import local_url
from tuner.core import (
    LARGEST,
    NUMBER,
    REPEATED,
    Better,
    Condition,
    ConfigError,
    Cost,
    Knob,
    LastObject,
    MeasurementError,
    Metric,
    Part,
    PrintedNumber,
    Quantity,
    Role,
    Scope,
    Space,
    Value,
    demand,
    standard,
)
from tuner.foreign_bodies import lines, parsed
from tuner.typed_toml import Filled, Table

BETTER = {"less": Better.LESS, "more": Better.MORE, None: None}
COUNTED = ("energy_j", "power_w", "cpu_time_ms", "latency_ms", "throughput_per_s")
"""Metrics that are measured around a run; a printed metric cannot have such a name."""

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


def http_method(method: str) -> str:
    """Return an HTTP method. Raises ConfigError: it is not in capital letters."""
    if not re.fullmatch(r"[A-Z]+", method):
        raise ConfigError(f"method cannot be {method!r}", hint="write it like POST")
    return method


def url_path(path: str) -> str:
    """Return a path of the service, or a URL on this machine. Raises InvalidInput: it is neither."""
    rest = path
    if path.startswith("http:"):
        address, slash, rest = path.removeprefix("http://").partition("/")
        rest = slash + rest
        local_url(f"http://{address}", "write http://127.0.0.1:PORT/PATH")
    if not re.fullmatch(r"/(?:[!-.0-~][!-~]*)?", rest):
        raise ConfigError(f"path cannot be {path!r}", hint="write it like /config")
    return path


def argv(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command, which runs without a shell. Raises ConfigError: they are not valid."""
    if not words or not all(word and "\0" not in word for word in words):
        raise ConfigError(
            f"a command is a list of words, not {list(words)!r}",
            hint='write it like command = ["systemctl", "restart", "vllm"]',
        )
    return words


def unit_name(name: str) -> str:
    """Return the name of a systemd unit that has processes.

    Raises:
        ConfigError: it is not such a name. Patterns are refused, because they could match other units.
    """
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.\\@-]*\.(?:service|scope|slice)", name):
        raise ConfigError(f"{name!r} is not a systemd unit", hint="write it like nginx.service")
    return name


def absolute(path: Path) -> Path:
    """Return an absolute path. Raises PydanticCustomError: the path is relative."""
    if not path.is_absolute() or "\0" in str(path):
        raise PydanticCustomError("relative_path", "an absolute path")
    return path


def environment(table: Mapping[str, str]) -> Mapping[str, str]:
    """Return a program's variables besides the agent's. Raises ConfigError: one is not valid."""
    for name, text in table.items():
        if "\0" in text or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"{name} = {text!r} is not valid", hint='write NAME = "text"')
    return table


def _value(value: object) -> object:
    """Return a knob's value. Raises ConfigError: it is not a bool, a number or a string."""
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{value!r} cannot be a knob's value")
    return value


LongText = Annotated[str, Field(max_length=1 << 20)]
"""A text that may be a whole file, such as a request's body."""
Positive = Annotated[float, Field(gt=0.0)]
HttpMethod = Annotated[str, AfterValidator(http_method)]
UrlPath = Annotated[str, AfterValidator(url_path)]
Argv = Annotated[tuple[LongText, ...], REPEATED, AfterValidator(argv)]
UnitName = Annotated[str, AfterValidator(unit_name)]
AbsolutePath = Annotated[Path, AfterValidator(absolute)]
Environment = Annotated[dict[str, LongText], AfterValidator(environment)]
KnobValue = Annotated[Value, PlainValidator(_value)]


@dataclass(frozen=True, kw_only=True)
class KnobTable(Table):
    """A table `[[knob]]`. Raises InvalidInput: it describes no knob."""

    name: Filled
    values: tuple[KnobValue, ...]
    default: KnobValue
    role: Role = Role.UNKNOWN
    seconds: float = 0.0
    restart: bool = False
    condition: Annotated[str | None, Field(alias="if")] = None

    def __post_init__(self) -> None:
        _ = self.knob

    @cached_property
    def knob(self) -> Knob:
        """The knob."""
        cost = Cost(self.seconds, self.restart)
        condition = None if self.condition is None else Condition.parse(self.condition)
        workload, role = Part.WORKLOAD, self.role
        return Knob(self.name, self.values, self.default, workload, cost, role, condition=condition)


def refuse_misfits(knobs: Sequence[Knob]) -> None:
    """Raise InvalidInput if knobs contradict each other, or if one of them can never have an effect."""
    Space(tuple(knobs)).refuse_unreached(knob.name for knob in knobs)


def metric_name(name: str) -> str:
    """Return a metric's name. Raises ConfigError: it is malformed."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"name cannot be {name!r}", hint="write it like accuracy")
    return name


def own_name(name: str) -> str:
    """Return the name of a metric that is not standard. Raises ConfigError: it is, or is malformed."""
    if standard(name) is not None:
        raise ConfigError(f"duplicate metric {name}", hint="give it another name")
    return metric_name(name)


def printed_name(name: str) -> str:
    """Return the name of a printed metric. Raises ConfigError: it is malformed, or measured anyway."""
    if name in COUNTED:
        raise ConfigError(f"duplicate metric {name}", hint="leave it out")
    return metric_name(name)


def compiled(text: object, info: ValidationInfo) -> object:
    """Return a text as a compiled pattern. Raises ConfigError: it is not a regular expression."""
    try:
        return re.compile(text) if isinstance(text, str) else text
    except re.error as error:
        raise ConfigError(f"{info.field_name} is not a regular expression: {error}") from None


def one_group(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern. Raises ConfigError: it does not have exactly one group."""
    if pattern.groups != 1:
        raise ConfigError("pattern must have one group ( ), around the value")
    return pattern


OwnName = Annotated[str, AfterValidator(own_name)]
Compiled = Annotated[re.Pattern[str], BeforeValidator(compiled)]
OneGroup = Annotated[Compiled, AfterValidator(one_group)]


@dataclass(frozen=True, kw_only=True)
class DeclaredMetric(Table):
    """A metric that a file declares; a standard one has its meaning by its name."""

    name: Annotated[str, AfterValidator(metric_name)]
    better: Literal["less", "more"] | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if standard(self.name) is not None and (self.better, self.unit) != (None, None):
            raise ConfigError(f"what {self.name} means is standard; leave out the other keys")

    @property
    def quantity(self) -> Quantity:
        """Its quantity."""
        unit = "1" if self.unit is None else self.unit
        return standard(self.name) or Quantity(unit, BETTER[self.better], signed=True)


@dataclass(frozen=True, kw_only=True)
class Printed(Table):
    """The place of a printed number: a key of the last JSON line, or the group of a pattern's last match.

    A key like `loss.final` names a nested entry.

    Raises:
        ConfigError: it has neither a key nor a pattern, or both.
    """

    json: str | None = None
    pattern: OneGroup | None = None

    def __post_init__(self) -> None:
        if (self.json is None) is (self.pattern is None):
            raise ConfigError(
                " needs a json or a pattern, one of them",
                hint="json is a key of the last line that is a JSON object; pattern has one group, "
                f"like 'accuracy: ({NUMBER})'",
            )


@dataclass(frozen=True, kw_only=True)
class PrintedItems(Printed):
    """The number of items of a run, or the place where the run prints it; 1 if the table is empty.

    Raises:
        ConfigError: the count is below 1, or is beside a place.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        places = [place for place in (self.json, self.pattern) if place is not None]
        if len(places) > 1 or (self.count is not None and (places or self.count < 1)):
            raise ConfigError(
                " needs a count of at least 1, or json or pattern of the printed count",
                hint="keep one of them",
            )

    def of(self, text: str) -> float:
        """Return the number for a run's output. Raises MeasurementError: there is no finite number."""
        if self.json is None and self.pattern is None:
            return float(self.count or 1)
        return number(self, text)


@dataclass(frozen=True, kw_only=True)
class PrintedMetric(DeclaredMetric, Printed):
    """A printed metric: its name, its meaning, and the place of its number."""

    name: Annotated[str, AfterValidator(printed_name)]

    def __post_init__(self) -> None:
        DeclaredMetric.__post_init__(self)
        Printed.__post_init__(self)

    @property
    def metric(self) -> Metric:
        """The metric, with the scope of the program's process."""
        return Metric(self.name, scope=Scope.PROCESS, quantity=self.quantity)


def refuse_duplicates(*names: str) -> None:
    """Raise ConfigError if two metrics have one name."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"duplicate metric {name}", hint="leave it out, or rename it")


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
        raw = _by_key(printed.json or "", text)
        place = f"at {printed.json!r} of its last line in JSON"
    else:
        raw = last_match(printed.pattern, text, unit)
        place = f"that matches {printed.pattern.pattern!r} says"
    if (value := finite(raw)) is None:
        raise MeasurementError(
            f"the program printed no number {place}: {last_words(text)}",
            hint="correct the pattern in the file, or let the program print it"
            if printed.pattern
            else f"let it print a JSON object with {printed.json!r}, at most {LARGEST:g}, as its last "
            "line, or give a pattern in a file (command:/PATH/FILE.toml)",
        )
    return value


def finite(raw: Any) -> float | None:  # noqa: ANN401  JSON, or a text
    """Return a number that can be reported; None for anything else, also for a boolean or 1e308."""
    try:
        value = math.nan if isinstance(raw, bool) or raw is None else float(raw)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) <= LARGEST else None


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


def _by_key(key: str, text: str) -> Any:  # noqa: ANN401  JSON
    """Return the value at a key of the last JSON line; None without one."""
    node: Any = _last_object(text)
    for step in key.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _last_object(text: str) -> object:
    """Return the JSON object of the last line that starts like one; None without such a line."""
    for line in reversed(lines(text)):
        if OBJECT.match(line):
            try:
                return parsed(line)
            except ValueError as error:
                demand(LastObject(line, str(error)))
    return None
