"""The knobs in a service's file: the ways to set each and to read it back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field

from agents.host.service_files import (
    AbsolutePath,
    Argv,
    HttpMethod,
    KnobTable,
    LongText,
    OneGroup,
    UnitName,
    UrlPath,
)
from agents.workloads.http.metric_config import ExportedRatio, JsonPlace
from tuner.core import ConfigError, Plan, Role, Value
from tuner.typed_toml import Filled, Table

Property = Literal[
    "CPUQuota",
    "CPUWeight",
    "AllowedCPUs",
    "IOWeight",
    "MemoryHigh",
    "MemoryMax",
    "TasksMax",
]
"""The properties of a systemd unit that can be a knob: its resources, never its programs."""

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


@dataclass(frozen=True, kw_only=True)
class SetCall(Table):
    """The call that sets a knob; the value is in its JSON or its path, and then JSON may be missing.

    Raises:
        ConfigError: neither has a place for the value.
    """

    method: HttpMethod = "PUT"
    path: UrlPath
    json: Any = None

    def __post_init__(self) -> None:
        if self.json is None and VALUE not in self.path:
            raise ConfigError(" has no json", hint="add json = …")
        if self.json is not None:
            demand_place("json of set", self.json, VALUE)

    def path_of(self, value: Value) -> str:
        """Return the path for a value."""
        return self.path.replace(VALUE, quote(written(value), safe=""))


@dataclass(frozen=True, kw_only=True)
class ReadTable(JsonPlace):
    """The source of the value in force: a JSON answer, or a command's output.

    Without a pattern, the whole output is the value, else the group of its last match.

    Raises:
        ConfigError: it is neither, or both.
    """

    path: UrlPath = ""
    json: str = ""
    command: Argv = ()
    pattern: OneGroup | None = None

    def __post_init__(self) -> None:
        if self.command and (self.path or self.json):
            raise ConfigError("command has no path and no json", hint="leave them out")
        if self.pattern is not None and not self.command:
            raise ConfigError("pattern goes with a command", hint="leave it out")
        missing = [k for k in ("path", "json") if not self.command and not getattr(self, k)]
        if missing:
            raise ConfigError(f" has no {missing[0]}", hint=f"add {missing[0]} = …")


@dataclass(frozen=True)
class UnitProperty(Table):
    """The property of a systemd unit that is set as a knob."""

    name: UnitName
    property: Property


@dataclass(frozen=True, kw_only=True)
class KnobFile(Table):
    """The file that a knob is written to; `at` maps some values to other content.

    Raises:
        ConfigError: it has neither JSON nor a text, or both, or no place for the value.
    """

    file: AbsolutePath
    json: Any = None
    text: LongText | None = None
    at: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.json is None) is (self.text is None):
            raise ConfigError(" needs either json or text")
        if self.text is None:
            return
        if VALUE not in self.text:
            raise ConfigError(f'text: a text needs "{VALUE}" and no table')
        if not all(isinstance(text, str) for text in self.at.values()):
            raise ConfigError(f"at: each value of `at` must be a text, not {self.at!r}")

    def content(self, value: Value, table: LoadTable | None) -> str:
        """Return the file's content for a value."""
        own = self.at.get(written(value))
        if own is not None:
            return _dumped(own) if self.text is None else str(own)
        if self.text is not None:
            return self.text.replace(VALUE, written(value))
        rows = None if table is None else table.single(value)
        return _dumped(filled(self.json, {VALUE: value, TABLE: rows}))

    def planned(self, rows: Any) -> str:  # noqa: ANN401
        """Return the file's content for a whole table."""
        return _dumped(filled(self.json, {TABLE: rows}))


@dataclass(frozen=True, kw_only=True)
class KnobEffect(Table):
    """The evidence that a knob is in force: a ratio of two counters equals its value, or is at most it."""

    counter: Filled
    per: Filled
    labels: dict[str, str] | None = None
    at_most: bool = False


@dataclass(frozen=True, kw_only=True)
class KnobCalls(KnobTable):
    """A knob: set by a call, in a file or in a unit; read back by a call, a command, or from its file.

    Raises:
        ConfigError: it has none or several of these ways, or they do not fit its values.
    """

    set: SetCall | None = None
    write: KnobFile | None = None
    unit: UnitProperty | None = None
    read: ReadTable | None = None
    table: LoadTable | None = None
    effect: KnobEffect | None = None

    def __post_init__(self) -> None:
        KnobTable.__post_init__(self)
        if [self.set, self.write, self.unit].count(None) != 2:
            raise ConfigError(
                f"{self.name} needs a set, a write or a unit, one of them",
                hint='add set = { path = "/config", json = { workers = "{value}" } }',
            )
        if self.unit is not None and self.read is not None:
            raise ConfigError(
                f"{self.name} is read back from systemd and the kernel", hint="leave out read"
            )
        if self.set is not None and self.read is None:
            raise ConfigError(
                f"{self.name} has no read, but every knob must be read back",
                hint='add read = { path = "/config", json = "workers" }',
            )
        if self.has_length_table and 0 not in self.values:
            raise ConfigError(
                f"table of {self.name} needs the value 0",
                hint="add 0 to values: plain decoding is ordered when too little is accepted",
            )
        self._demand_fit()

    def _demand_fit(self) -> None:
        """Raise ConfigError if a way to set the knob does not fit its values or its table."""
        if self.table is not None and (self.write is None or self.write.text is not None):
            raise ConfigError(f"table of {self.name} needs a write with json")
        if self.write is not None and self.write.text is None:
            place = VALUE if self.table is None else TABLE
            demand_place("json of write", self.write.json, place)
        if self.effect is not None and not all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in self.values
        ):
            raise ConfigError(f"effect: a ratio needs numbers, not {list(self.values)!r}")
        if self.unit is None:
            return
        pattern = r"infinity|[0-9]+(-[0-9]+)?([ ,][0-9]+(-[0-9]+)?)*"
        if self.unit.property != "AllowedCPUs":
            pattern = r"infinity|[1-9][0-9]*"
        for value in self.values:
            if isinstance(value, bool | float) or not re.fullmatch(pattern, str(value)):
                raise ConfigError(
                    f"unit: {self.unit.property} cannot be {value!r}",
                    hint="write a whole number, a list of cores for AllowedCPUs, or infinity",
                )

    @cached_property
    def effect_ratio(self) -> ExportedRatio | None:
        """The ratio that shows the effect, under the knob's name."""
        one = self.effect
        if one is None:
            return None
        return ExportedRatio(name=self.name, counter=one.counter, per=one.per, labels=one.labels)

    @property
    def http(self) -> bool:
        """Whether the knob is set, read or checked over HTTP."""
        answered = self.read is not None and not self.read.command
        return self.set is not None or answered or self.effect is not None

    @property
    def has_length_table(self) -> bool:
        """Whether the service sets the draft length by its own table."""
        is_length = self.role is Role.SPECULATION_LENGTH
        return is_length and self.write is not None and self.table is not None


def written(value: Value) -> str:
    """Return a value as written in a text: true and false as in most formats."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _dumped(content: Any) -> str:  # noqa: ANN401
    """Return a JSON content as a file has it."""
    return json.dumps(content, indent=2) + "\n"
