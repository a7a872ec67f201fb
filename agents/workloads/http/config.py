"""The file that says how a service is set and measured, read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agents.host.local_http import local_url
from agents.load.generator import LoadShape
from tuner import toml
from tuner.core import ConfigError, Cost, InvalidInput, Knob, Part, Role, Space, Value

VALUE = "{value}"
"""What stands in a body for the value to be set."""
UNITS_MS: Mapping[str, float] = {"s": 1000.0, "ms": 1.0}
METRICS = "/metrics"

FILE_KEYS: dict[str, Any] = dict.fromkeys(("name", "url", "version"), str)
FILE_KEYS |= {"knob": list, "latency": dict, "failures": dict, "load": dict}
KNOB_KEYS: dict[str, Any] = {"name": str, "values": list, "role": str}
KNOB_KEYS |= {"seconds": toml.NUMBER, "restart": bool, "set": dict, "read": dict}
SET_KEYS = {"method": str, "path": str, "json": object}
READ_KEYS = {"path": str, "json": str}
LATENCY_KEYS = {"metrics": str, "histogram": str, "labels": dict, "unit": str}
FAILURES_KEYS = {"counter": str, "labels": dict}
LOAD_KEYS: dict[str, Any] = {"callers": int, "rate_per_s": toml.NUMBER}
LOAD_KEYS |= dict.fromkeys(("method", "path", "body"), str)


@dataclass(frozen=True, slots=True)
class KnobCalls:
    """A knob, the call that sets it, and where what is in force is read."""

    knob: Knob
    method: str
    path: str
    template: Any
    read_path: str
    read_at: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The series of one metric in a Prometheus text; empty: none. `unit_ms` is a histogram's unit."""

    name: str = ""
    labels: Mapping[str, str] | None = None
    unit_ms: float = 1.0

    def keep(self, labels: Mapping[str, str]) -> bool:
        """Whether a series has all the labels."""
        return (self.labels or {}).items() <= labels.items()


@dataclass(frozen=True, slots=True)
class OurLoad:
    """What our load generator sends."""

    shape: LoadShape
    method: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """All that a file says."""

    name: str
    url: str
    version: str
    knobs: tuple[KnobCalls, ...]
    metrics: str
    latency: Series
    failures: Series
    load: OurLoad | None


def load_service_config(path: Path) -> ServiceConfig:
    """Read a service's file.

    Raises:
        ConfigError: it cannot be read, does not parse, or says what cannot be, such as a URL that is
            not on this machine; the message names the file, the key, and the nearest key there is.
    """
    where = str(path)
    table = toml.read(path, FILE_KEYS)
    _demand(where, table, "name", "url")
    knobs = tuple(_knob(where, n, one) for n, one in enumerate(table.get("knob", []), 1))
    try:
        url = local_url(table["url"], "write http://127.0.0.1:PORT")
        Space(tuple(one.knob for one in knobs))
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    if url.path not in ("", "/"):
        raise ConfigError(f"{where}: url must end after the port", hint="paths are each call's own")
    if not {"latency", "load"} & table.keys():
        raise ConfigError(
            f"{where} says neither how latency is read nor what load to send",
            hint="add a table [latency] or [load]",
        )
    latency = _checked(f"{where}: latency", table, "latency", LATENCY_KEYS, "histogram")
    failures = _checked(f"{where}: failures", table, "failures", FAILURES_KEYS, "counter")
    unit = latency.get("unit", "s")
    if unit not in UNITS_MS:
        raise ConfigError(f"{where}: latency: unit cannot be {unit!r}", hint="choose s or ms")
    return ServiceConfig(
        name=table["name"],
        url=table["url"].rstrip("/"),
        version=table.get("version", "unknown"),
        knobs=knobs,
        metrics=_path(f"{where}: latency", latency.get("metrics", METRICS)),
        latency=Series(latency.get("histogram", ""), latency.get("labels"), UNITS_MS[unit]),
        failures=Series(failures.get("counter", ""), failures.get("labels")),
        load=_load(f"{where}: load", table) if "load" in table else None,
    )


def _knob(where: str, number: int, table: object) -> KnobCalls:
    where = f"{where}: knob {number}"
    default = table.get("default") if isinstance(table, dict) else None
    kinds = {**KNOB_KEYS, "default": bool if isinstance(default, bool) else object}
    known = toml.checked(where, table, kinds)
    _demand(where, known, "name", "values", "default", "set")
    if "read" not in known:
        raise ConfigError(
            f"{where}: {known['name']} has no read, and what cannot be read back is not set",
            hint='add read = { path = "/config", json = "workers" }',
        )
    setting = toml.checked(f"{where}: set", known["set"], SET_KEYS)
    reading = toml.checked(f"{where}: read", known["read"], READ_KEYS)
    _demand(f"{where}: set", setting, "path", "json")
    _demand(f"{where}: read", reading, "path", "json")
    try:
        if VALUE not in re.findall(r'"([^"]*)"', json.dumps(setting["json"])):
            raise ConfigError(f'{where}: the json of set has no "{VALUE}" in it')
        cost = Cost(float(known.get("seconds", 0.0)), known.get("restart", False))
        values, role = _values(where, known["values"]), _role(where, known.get("role"))
        knob = Knob(known["name"], values, known["default"], Part.WORKLOAD, cost, role)
    except TypeError as error:
        raise ConfigError(f"{where}: the json of set cannot be sent: {error}") from None
    except ConfigError:
        raise
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}") from None
    return KnobCalls(
        knob,
        _method(f"{where}: set", setting.get("method", "PUT")),
        _path(f"{where}: set", setting["path"]),
        setting["json"],
        _path(f"{where}: read", reading["path"]),
        tuple(reading["json"].split(".")),
    )


def _load(where: str, table: Mapping[str, Any]) -> OurLoad:
    known = _checked(where, table, "load", LOAD_KEYS, "path")
    try:
        shape = LoadShape(**{k: known[k] for k in ("callers", "rate_per_s") if k in known})
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}") from None
    method = _method(where, known.get("method", "POST"))
    return OurLoad(shape, method, _path(where, known["path"]), known.get("body", "").encode())


def _checked(
    where: str, table: Mapping[str, Any], key: str, kinds: Mapping[str, Any], *needed: str
) -> dict[str, Any]:
    """Return an inner table, empty where it is not there; the labels in it are texts."""
    if key not in table:
        return {}
    known = toml.checked(where, table[key], kinds)
    _demand(where, known, *needed)
    for label, value in known.get("labels", {}).items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: the label {label} must be a string, not {value!r}")
    return known


def _demand(where: str, table: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if table.get(key) in (None, ""):
            raise ConfigError(f"{where} has no {key}", hint=f"add {key} = …")


def _values(where: str, values: list[Any]) -> tuple[Value, ...]:
    for value in values:
        if not isinstance(value, bool | int | float | str):
            raise ConfigError(f"{where}: {value!r} cannot be a knob's value")
    return tuple(values)


def _role(where: str, role: str | None) -> Role:
    if role is not None and role not in list(Role):
        near = get_close_matches(role, list(Role), 1) or list(Role)
        raise ConfigError(f"{where}: there is no role {role!r}", hint=f"known: {', '.join(near)}")
    return Role.UNKNOWN if role is None else Role(role)


def _method(where: str, method: str) -> str:
    if not re.fullmatch(r"[A-Z]+", method):
        raise ConfigError(f"{where}: method cannot be {method!r}", hint="write it like POST")
    return method


def _path(where: str, path: str) -> str:
    if not re.fullmatch(r"/(?:[!-.0-~][!-~]*)?", path):
        raise ConfigError(f"{where}: path cannot be {path!r}", hint="write it like /config")
    return path
