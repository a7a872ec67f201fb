"""The file that says how a service is set and measured, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.host.local_http import local_url
from agents.host.tables import argv, demand, http_method, inner, url_path
from agents.load.generator import LoadShape
from agents.workloads.http.knob_config import KnobCalls, knob_calls
from agents.workloads.http.metric_config import (
    COUNTER_KEYS,
    LATENCY_KEYS,
    ExportedMetrics,
    Series,
    exported_metrics,
    histogram_of,
)
from tuner import toml
from tuner.core import ConfigError, InvalidInput, Role, Space

METRICS = "/metrics"

FILE_KEYS: dict[str, Any] = dict.fromkeys(("name", "url", "version"), str)
FILE_KEYS |= dict.fromkeys(("knob", "histogram", "ratio"), list)
FILE_KEYS |= dict.fromkeys(("latency", "failures", "items", "signal", "load", "restart"), dict)
FILE_KEYS |= {"cpu_time": bool, "always_busy": bool}
RESTART_KEYS: dict[str, Any] = {"command": list, "ready": str, "seconds": toml.NUMBER}
LOAD_KEYS: dict[str, Any] = {"callers": int, "rate_per_s": toml.NUMBER, "timeout_s": toml.NUMBER}
LOAD_KEYS |= dict.fromkeys(("method", "path", "body", "bodies"), str)
RESTART_S, ANSWER_S = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class OurLoad:
    """What our load generator sends: the bodies in turn."""

    shape: LoadShape
    method: str
    path: str
    bodies: tuple[bytes, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """What is run once a knob's file was written, and until when the service must be ready again."""

    argv: tuple[str, ...]
    ready: str
    seconds: float


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
    exported: ExportedMetrics
    cpu_time: bool
    always_busy: bool
    load: OurLoad | None
    restart: RestartCommand | None

    @property
    def longest(self) -> int:
        """The largest speculation length, so many places a ratio by a label may have."""
        lengths = [one.knob for one in self.knobs if one.knob.role is Role.SPECULATION_LENGTH]
        values = [value for knob in lengths for value in knob.values if isinstance(value, int)]
        return max(values, default=0)


def load_service_config(path: Path) -> ServiceConfig:
    """Read a service's file.

    Raises:
        ConfigError: it cannot be read, does not parse, or says what cannot be, such as a URL that is
            not on this machine; the message names the file, the key, and the nearest key there is.
    """
    where = str(path)
    table = toml.read(path, FILE_KEYS)
    demand(where, table, "name", "url")
    knobs = _knobs(where, table)
    try:
        url = local_url(table["url"], "write http://127.0.0.1:PORT")
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    if url.path not in ("", "/"):
        raise ConfigError(f"{where}: url must end after the port", hint="paths are each call's own")
    if not {"latency", "load"} & table.keys():
        raise ConfigError(
            f"{where} says neither how latency is read nor what load to send",
            hint="add a table [latency] or [load]",
        )
    latency = inner(f"{where}: latency", table, "latency", LATENCY_KEYS, "histogram")
    failures = inner(f"{where}: failures", table, "failures", COUNTER_KEYS, "counter")
    return ServiceConfig(
        name=table["name"],
        url=table["url"].rstrip("/"),
        version=table.get("version", "unknown"),
        knobs=knobs,
        metrics=url_path(f"{where}: latency", latency.get("metrics", METRICS)),
        latency=histogram_of(f"{where}: latency", latency),
        failures=Series(failures.get("counter", ""), failures.get("labels")),
        exported=exported_metrics(where, table),
        cpu_time=table.get("cpu_time", True),
        always_busy=table.get("always_busy", False),
        load=_load(f"{where}: load", table) if "load" in table else None,
        restart=_restart(f"{where}: restart", table) if "restart" in table else None,
    )


def _knobs(where: str, table: Mapping[str, Any]) -> tuple[KnobCalls, ...]:
    knobs = tuple(
        knob_calls(f"{where}: knob {n}", one) for n, one in enumerate(table.get("knob", []), 1)
    )
    try:
        Space(tuple(one.knob for one in knobs))
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    written = [one for one in knobs if one.file is not None]
    if written and "restart" not in table:
        raise ConfigError(
            f"{where}: {written[0].knob.name} is written to a file, and nothing tells the service",
            hint='add [restart] with command = ["systemctl", "restart", "vllm"]',
        )
    files = [one.file.path for one in written if one.file is not None]
    if len(set(files)) < len(files):
        raise ConfigError(f"{where}: two knobs are written to one file", hint="give each its own")
    if len([one for one in written if one.file is not None and one.file.table is not None]) > 1:
        raise ConfigError(f"{where}: only one knob can have a table")
    return knobs


def _restart(where: str, table: Mapping[str, Any]) -> RestartCommand:
    known = inner(where, table, "restart", RESTART_KEYS, "command")
    ready = known.get("ready", METRICS)
    seconds = float(known.get("seconds", RESTART_S))
    return RestartCommand(argv(where, known["command"]), url_path(where, ready), seconds)


def _load(where: str, table: Mapping[str, Any]) -> OurLoad:
    known = inner(where, table, "load", LOAD_KEYS, "path")
    try:
        shape = LoadShape(**{k: known[k] for k in ("callers", "rate_per_s") if k in known})
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}") from None
    if "body" in known and "bodies" in known:
        raise ConfigError(f"{where} has a body and bodies", hint="leave one of them out")
    bodies = _bodies(where, Path(known["bodies"])) if "bodies" in known else None
    return OurLoad(
        shape,
        http_method(where, known.get("method", "POST")),
        url_path(where, known["path"]),
        tuple(bodies) if bodies else (known.get("body", "").encode(),),
        float(known.get("timeout_s", ANSWER_S)),
    )


def _bodies(where: str, file: Path) -> Sequence[bytes]:
    """Return the lines of a file, each one body in JSON. Raises ConfigError."""
    if not file.is_absolute():
        raise ConfigError(f"{where}: bodies must be an absolute path, not {str(file)!r}")
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for line in lines:
            json.loads(line)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot read the bodies {file}: {error}") from None
    if not lines:
        raise ConfigError(f"{where}: {file} has no body in it", hint="write one JSON body a line")
    return tuple(line.encode() for line in lines)
