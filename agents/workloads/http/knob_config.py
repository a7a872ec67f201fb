"""The knobs in a service's file: the ways to set each and to read it back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agents.host.service_files.knob_table import knob_table
from agents.host.service_files.printed_table import one_group
from agents.host.service_files.tables import (
    absolute,
    argv,
    checked,
    demand,
    http_method,
    unit_name,
    url_path,
)
from agents.workloads.http.metric_config import ExportedRatio, ratio_of
from agents.workloads.http.template import TABLE, VALUE, LoadTable, filled, places_in
from tuner.core import ConfigError, Knob, Role, Value

HOW_KEYS = dict.fromkeys(("set", "write", "unit", "read", "table", "effect"), dict)
SET_KEYS = {"method": str, "path": str, "json": object}
WRITE_KEYS: dict[str, Any] = {"file": str, "json": object, "text": str, "at": dict}
READ_KEYS = {"path": str, "json": str, "command": list, "pattern": str}
UNIT_KEYS = {"name": str, "property": str}
PROPERTIES = (
    "CPUQuota",
    "CPUWeight",
    "AllowedCPUs",
    "IOWeight",
    "MemoryHigh",
    "MemoryMax",
    "TasksMax",
)
"""The properties of a systemd unit that can be a knob: its resources, never its programs."""
TABLE_KEYS = {"by": str, "row": object, "most": int}
EFFECT_KEYS = {"counter": str, "per": str, "labels": dict, "at_most": bool}


@dataclass(frozen=True, slots=True)
class SetCall:
    """The call that sets a knob; the value is in its JSON or its path, and then JSON may be missing."""

    method: str
    path: str
    template: Any | None

    def path_of(self, value: Value) -> str:
        """Return the path for a value."""
        return self.path.replace(VALUE, quote(written(value), safe=""))


@dataclass(frozen=True, slots=True)
class ReadCall:
    """The source of the value in force: a path, and the keys through the answer."""

    path: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """A command that prints the value in force: its output, or the last match of a pattern's group."""

    argv: tuple[str, ...]
    pattern: re.Pattern[str] | None

    def __str__(self) -> str:
        return "a value" if self.pattern is None else repr(self.pattern.pattern)


@dataclass(frozen=True, slots=True)
class UnitProperty:
    """The property of a systemd unit that is set as a knob."""

    name: str
    property: str


@dataclass(frozen=True, slots=True)
class KnobFile:
    """The file that a knob is written to; `at` maps some values to other content."""

    path: Path
    template: Any
    is_text: bool
    at: Mapping[str, Any]
    table: LoadTable | None

    def content(self, value: Value) -> str:
        """Return the file's content for a value."""
        own = self.at.get(written(value))
        if own is not None:
            return str(own) if self.is_text else _dumped(own)
        if self.is_text:
            return str(self.template).replace(VALUE, written(value))
        table = None if self.table is None else self.table.single(value)
        return _dumped(filled(self.template, {VALUE: value, TABLE: table}))

    def planned(self, table: Any) -> str:  # noqa: ANN401
        """Return the file's content for a whole table."""
        return _dumped(filled(self.template, {TABLE: table}))


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """The evidence that a knob is in force: a ratio of two counters equals its value, or is at most it."""

    ratio: ExportedRatio
    at_most: bool


@dataclass(frozen=True, slots=True)
class KnobCalls:
    """A knob: set by a call, in a file or in a unit; read back by a call, a command, or from its file."""

    knob: Knob
    set: SetCall | None
    file: KnobFile | None
    unit: UnitProperty | None
    read: ReadCall | ReadCommand | None
    effect: KnobEffect | None

    @property
    def http(self) -> bool:
        """Whether the knob is set, read or checked over HTTP."""
        return self.set is not None or isinstance(self.read, ReadCall) or self.effect is not None

    @property
    def has_length_table(self) -> bool:
        """Whether the service sets the draft length by its own table."""
        is_length = self.knob.role is Role.SPECULATION_LENGTH
        return is_length and self.file is not None and self.file.table is not None


def knob_calls(where: str, table: object) -> KnobCalls:
    """Parse a `[[knob]]` table. Raises ConfigError."""
    knob, entry = knob_table(where, table, HOW_KEYS)
    if len({"set", "write", "unit"} & entry.keys()) != 1:
        raise ConfigError(
            f"{where}: {entry['name']} needs a set, a write or a unit, one of them",
            hint='add set = { path = "/config", json = { workers = "{value}" } }',
        )
    if "unit" in entry and "read" in entry:
        raise ConfigError(
            f"{where}: {entry['name']} is read back from systemd and the kernel",
            hint="leave out read",
        )
    if "set" in entry and "read" not in entry:
        raise ConfigError(
            f"{where}: {entry['name']} has no read, but every knob must be read back",
            hint='add read = { path = "/config", json = "workers" }',
        )
    calls = KnobCalls(
        knob,
        _set_call(f"{where}: set", entry["set"]) if "set" in entry else None,
        _file(where, entry) if "write" in entry else None,
        _unit(f"{where}: unit", entry["unit"], knob) if "unit" in entry else None,
        _read_call(f"{where}: read", entry["read"]) if "read" in entry else None,
        _effect(f"{where}: effect", entry["effect"], knob) if "effect" in entry else None,
    )
    if calls.has_length_table and 0 not in knob.values:
        raise ConfigError(
            f"{where}: the table of {knob.name} needs the value 0",
            hint="add 0 to values: plain decoding is ordered when too little is accepted",
        )
    return calls


def _set_call(where: str, table: object) -> SetCall:
    """Parse `set`. Raises ConfigError."""
    entry = checked(where, table, SET_KEYS, "path")
    if "json" in entry or VALUE not in entry["path"]:
        demand(where, entry, "json")
        _demand_place(where, entry["json"], VALUE)
    return SetCall(
        http_method(where, entry.get("method", "PUT")),
        url_path(where, entry["path"]),
        entry.get("json"),
    )


def _read_call(where: str, table: object) -> ReadCall | ReadCommand:
    """Parse `read`. Raises ConfigError."""
    entry = checked(where, table, READ_KEYS)
    if "command" in entry:
        if {"path", "json"} & entry.keys():
            raise ConfigError(f"{where}: a command has no path and no json", hint="leave them out")
        pattern = one_group(where, entry["pattern"]) if "pattern" in entry else None
        return ReadCommand(argv(where, entry["command"]), pattern)
    if "pattern" in entry:
        raise ConfigError(f"{where}: a pattern goes with a command", hint="leave it out")
    demand(where, entry, "path", "json")
    return ReadCall(url_path(where, entry["path"]), tuple(entry["json"].split(".")))


def _unit(where: str, table: object, knob: Knob) -> UnitProperty:
    """Parse `unit`, and check the knob's values. Raises ConfigError."""
    entry = checked(where, table, UNIT_KEYS, "name", "property")
    name = unit_name(where, entry["name"])
    if entry["property"] not in PROPERTIES:
        near = get_close_matches(entry["property"], PROPERTIES, 1) or PROPERTIES
        raise ConfigError(
            f"{where}: property cannot be {entry['property']!r}",
            hint=f"properties: {', '.join(near)}",
        )
    pattern = r"infinity|[0-9]+(-[0-9]+)?([ ,][0-9]+(-[0-9]+)?)*"
    if entry["property"] != "AllowedCPUs":
        pattern = r"infinity|[1-9][0-9]*"
    for value in knob.values:
        if isinstance(value, bool | float) or not re.fullmatch(pattern, str(value)):
            raise ConfigError(
                f"{where}: {entry['property']} cannot be {value!r}",
                hint="write a whole number, a list of cores for AllowedCPUs, or infinity",
            )
    return UnitProperty(name, entry["property"])


def _file(where: str, knob: Mapping[str, Any]) -> KnobFile:
    """Parse `write` and `table`. Raises ConfigError."""
    entry = checked(f"{where}: write", knob["write"], WRITE_KEYS, "file")
    table = _table(f"{where}: table", knob["table"]) if "table" in knob else None
    path = absolute(f"{where}: write", "file", entry["file"])
    if ("json" in entry) is ("text" in entry):
        raise ConfigError(f"{where}: write needs either json or text")
    if "text" in entry:
        if VALUE not in entry["text"] or table is not None:
            raise ConfigError(f'{where}: write: a text needs "{VALUE}" and no table')
        own = entry.get("at", {})
        if not all(isinstance(text, str) for text in own.values()):
            raise ConfigError(f"{where}: write: each value of `at` must be a text, not {own!r}")
        return KnobFile(path, entry["text"], True, own, None)
    _demand_place(f"{where}: write", entry["json"], VALUE if table is None else TABLE)
    return KnobFile(path, entry["json"], False, entry.get("at", {}), table)


def _table(where: str, table: object) -> LoadTable:
    """Parse `table`. Raises ConfigError."""
    if isinstance(table, dict) and isinstance(table.get("by"), list):
        raise ConfigError(
            f"{where}: by cannot be several signals: a table is handed over by one signal only",
            hint='name one signal, such as by = "decoding_requests"',
        )
    entry = checked(where, table, TABLE_KEYS, "by", "row", "most")
    _demand_place(where, entry["row"], VALUE)
    if entry["most"] < 1:
        raise ConfigError(f"{where}: most must be at least 1, not {entry['most']}")
    return LoadTable(entry["by"], entry["row"], entry["most"])


def _effect(where: str, table: object, knob: Knob) -> KnobEffect:
    """Parse `effect`. Raises ConfigError."""
    entry = checked(where, table, EFFECT_KEYS, "counter", "per")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in knob.values):
        raise ConfigError(f"{where}: a ratio needs numbers, not {knob.values!r}")
    at_most = entry.pop("at_most", False)
    return KnobEffect(ratio_of(where, {**entry, "name": knob.name}), at_most)


def _demand_place(where: str, template: object, place: str) -> None:
    """Raise ConfigError unless a template has a placeholder."""
    try:
        json.dumps(template)
    except TypeError as error:
        raise ConfigError(f"{where}: its json cannot be sent: {error}") from None
    if place not in places_in(template):
        key = "row" if where.endswith("table") else "json"
        raise ConfigError(
            f'{where}: the {key} of {where.rpartition(": ")[2]} has no "{place}" in it'
        )


def written(value: Value) -> str:
    """Return a value as written in a text: true and false as in most formats."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _dumped(content: Any) -> str:  # noqa: ANN401
    """Return a JSON content as a file has it."""
    return json.dumps(content, indent=2) + "\n"
