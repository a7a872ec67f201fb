"""What a service's file says of its knobs: how each is set, and where it is read back."""

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
from tuner.core import ConfigError, Knob, Value

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
"""What of a systemd unit can be a knob: what it may use, and nothing of what it runs."""
TABLE_KEYS = {"by": str, "row": object, "most": int}
EFFECT_KEYS = {"counter": str, "per": str, "labels": dict, "at_most": bool}


@dataclass(frozen=True, slots=True)
class SetCall:
    """The call that sets a knob: the value is in its JSON or its path; then JSON may be missing."""

    method: str
    path: str
    template: Any | None

    def path_of(self, value: Value) -> str:
        """Return the path for a value."""
        return self.path.replace(VALUE, quote(written(value), safe=""))


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Where the value in force is read: a path, and the way through the answer."""

    path: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """A command that prints the value in force: all of it, or the last match of a pattern's group."""

    argv: tuple[str, ...]
    pattern: re.Pattern[str] | None

    def __str__(self) -> str:
        return "a value" if self.pattern is None else repr(self.pattern.pattern)


@dataclass(frozen=True, slots=True)
class UnitProperty:
    """The property of a systemd unit that a knob is."""

    name: str
    property: str


@dataclass(frozen=True, slots=True)
class KnobFile:
    """The file that a knob is written to; `at` is what is written instead for some values."""

    path: Path
    template: Any
    is_text: bool
    at: Mapping[str, Any]
    table: LoadTable | None

    def content(self, value: Value) -> str:
        """Return what the file says for a value."""
        own = self.at.get(written(value))
        if own is not None:
            return str(own) if self.is_text else _dumped(own)
        if self.is_text:
            return str(self.template).replace(VALUE, written(value))
        table = None if self.table is None else self.table.single(value)
        return _dumped(filled(self.template, {VALUE: value, TABLE: table}))

    def planned(self, table: Any) -> str:  # noqa: ANN401
        """Return what the file says for a whole table."""
        return _dumped(filled(self.template, {TABLE: table}))


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """What shows that a knob is in force: a ratio of two counters is at its value, or at most."""

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
        """Whether it is set or read over HTTP, or its effect is."""
        return self.set is not None or isinstance(self.read, ReadCall) or self.effect is not None


def knob_calls(where: str, table: object) -> KnobCalls:
    """Return what a table `[[knob]]` says. Raises ConfigError."""
    knob, known = knob_table(where, table, HOW_KEYS)
    if len({"set", "write", "unit"} & known.keys()) != 1:
        raise ConfigError(
            f"{where}: {known['name']} needs a set, a write or a unit, one of them",
            hint='add set = { path = "/config", json = { workers = "{value}" } }',
        )
    if "unit" in known and "read" in known:
        raise ConfigError(
            f"{where}: {known['name']} is read back from systemd and the kernel",
            hint="leave out read",
        )
    if "set" in known and "read" not in known:
        raise ConfigError(
            f"{where}: {known['name']} has no read, but every knob must be read back",
            hint='add read = { path = "/config", json = "workers" }',
        )
    return KnobCalls(
        knob,
        _set_call(f"{where}: set", known["set"]) if "set" in known else None,
        _file(where, known) if "write" in known else None,
        _unit(f"{where}: unit", known["unit"], knob) if "unit" in known else None,
        _read_call(f"{where}: read", known["read"]) if "read" in known else None,
        _effect(f"{where}: effect", known["effect"], knob) if "effect" in known else None,
    )


def _set_call(where: str, table: object) -> SetCall:
    known = checked(where, table, SET_KEYS, "path")
    if "json" in known or VALUE not in known["path"]:
        demand(where, known, "json")
        _demand_place(where, known["json"], VALUE)
    return SetCall(
        http_method(where, known.get("method", "PUT")),
        url_path(where, known["path"]),
        known.get("json"),
    )


def _read_call(where: str, table: object) -> ReadCall | ReadCommand:
    known = checked(where, table, READ_KEYS)
    if "command" in known:
        if {"path", "json"} & known.keys():
            raise ConfigError(f"{where}: a command has no path and no json", hint="leave them out")
        pattern = one_group(where, known["pattern"]) if "pattern" in known else None
        return ReadCommand(argv(where, known["command"]), pattern)
    if "pattern" in known:
        raise ConfigError(f"{where}: a pattern goes with a command", hint="leave it out")
    demand(where, known, "path", "json")
    return ReadCall(url_path(where, known["path"]), tuple(known["json"].split(".")))


def _unit(where: str, table: object, knob: Knob) -> UnitProperty:
    known = checked(where, table, UNIT_KEYS, "name", "property")
    name = unit_name(where, known["name"])
    if known["property"] not in PROPERTIES:
        near = get_close_matches(known["property"], PROPERTIES, 1) or PROPERTIES
        raise ConfigError(
            f"{where}: property cannot be {known['property']!r}",
            hint=f"properties: {', '.join(near)}",
        )
    wanted = r"infinity|[0-9]+(-[0-9]+)?([ ,][0-9]+(-[0-9]+)?)*"
    if known["property"] != "AllowedCPUs":
        wanted = r"infinity|[1-9][0-9]*"
    for value in knob.values:
        if isinstance(value, bool | float) or not re.fullmatch(wanted, str(value)):
            raise ConfigError(
                f"{where}: {known['property']} cannot be {value!r}",
                hint="write a whole number, a list of cores for AllowedCPUs, or infinity",
            )
    return UnitProperty(name, known["property"])


def _file(where: str, knob: Mapping[str, Any]) -> KnobFile:
    known = checked(f"{where}: write", knob["write"], WRITE_KEYS, "file")
    table = _table(f"{where}: table", knob["table"]) if "table" in knob else None
    path = absolute(f"{where}: write", "file", known["file"])
    if ("json" in known) is ("text" in known):
        raise ConfigError(f"{where}: write needs a json or a text, one of them")
    if "text" in known:
        if VALUE not in known["text"] or table is not None:
            raise ConfigError(f'{where}: write: a text needs "{VALUE}" and no table')
        own = known.get("at", {})
        if not all(isinstance(text, str) for text in own.values()):
            raise ConfigError(f"{where}: write: at of a text needs texts, not {own!r}")
        return KnobFile(path, known["text"], True, own, None)
    _demand_place(f"{where}: write", known["json"], VALUE if table is None else TABLE)
    return KnobFile(path, known["json"], False, known.get("at", {}), table)


def _table(where: str, table: object) -> LoadTable:
    known = checked(where, table, TABLE_KEYS, "by", "row", "most")
    _demand_place(where, known["row"], VALUE)
    if known["most"] < 1:
        raise ConfigError(f"{where}: most must be at least 1, not {known['most']}")
    return LoadTable(known["by"], known["row"], known["most"])


def _effect(where: str, table: object, knob: Knob) -> KnobEffect:
    known = checked(where, table, EFFECT_KEYS, "counter", "per")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in knob.values):
        raise ConfigError(f"{where}: a ratio needs numbers, not {knob.values!r}")
    at_most = known.pop("at_most", False)
    return KnobEffect(ratio_of(where, {**known, "name": knob.name}), at_most)


def _demand_place(where: str, template: object, place: str) -> None:
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
    """Return a value as written in a text: true and false as most formats have them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _dumped(content: Any) -> str:  # noqa: ANN401
    return json.dumps(content, indent=2) + "\n"
