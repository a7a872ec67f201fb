"""Strict reader of a service's file: how the service is set and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.finetuning.programs import ProgramsSignal
from agents.host.http.local_http import local_url
from agents.host.processes.service_process import RELOADS
from agents.host.service_files.knob_table import refuse_misfits
from agents.host.service_files.tables import (
    absolute,
    argv,
    checked,
    demand,
    inner,
    positive,
    unit_name,
    url_path,
)
from agents.workloads.http.json_meter import JsonNumber, json_numbers
from agents.workloads.http.knob_config import KnobCalls, ReadCall, knob_calls
from agents.workloads.http.load_config import OurLoad, RunLoad, load_of
from agents.workloads.http.log_config import LogLines, log_lines
from agents.workloads.http.metric_config import (
    COUNTER_KEYS,
    LATENCY_KEYS,
    ExportedMetrics,
    Series,
    exported_metrics,
    histogram_of,
)
from tuner import toml
from tuner.core import ConfigError, InvalidInput, Role, reraised

METRICS = "/metrics"

FILE_KEYS: dict[str, Any] = dict.fromkeys(("name", "url", "version", "finetuning_lock"), str)
FILE_KEYS |= dict.fromkeys(("knob", "histogram", "ratio", "json"), list)
FILE_KEYS |= dict.fromkeys(("latency", "failures", "items", "signal", "load", "log"), dict)
FILE_KEYS |= dict.fromkeys(("restart", "reload", "process", "idle"), dict)
FILE_KEYS |= {"cpu_time": bool, "always_busy": bool}
HTTP_KEYS = ("latency", "failures", "items", "signal", "histogram", "ratio", "json")
RENEWAL_KEYS: dict[str, Any] = {"command": list, "ready": str, "seconds": toml.NUMBER}
PROCESS_KEYS = {"unit": str, "port": int, "pid_file": str, "program": str}
IDLE_KEYS = {"unloaded": dict, "delay": str}
UNLOADED_KEYS = {"path": str, "json": str}
RENEWAL_S = 60.0


@dataclass(frozen=True, slots=True)
class RenewalConfig:
    """How a service reloads its files: a command or a signal, and the time until it must be ready."""

    argv: tuple[str, ...]
    signal: str
    ready: str
    seconds: float

    def __str__(self) -> str:
        return " ".join(self.argv) if self.argv else f"SIG{self.signal}"


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The source of the service's CPU time: a systemd unit, or a process and all its children.

    The process is that of a PID file, or the one that listens at a port.
    """

    unit: str = ""
    pid_file: Path | None = None
    program: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class IdleConfig:
    """How a service shows that its model has left memory, if it does, and the knob of that delay."""

    unloaded: ReadCall | None
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The content of a service's file. Without a `url` nothing uses HTTP."""

    name: str
    url: str
    version: str
    knobs: tuple[KnobCalls, ...]
    metrics: str
    latency: Series
    failures: Series
    exported: ExportedMetrics
    json: tuple[JsonNumber, ...]
    log: LogLines | None
    process: ProcessConfig | None
    cpu_time: bool
    always_busy: bool
    load: OurLoad | RunLoad | None
    restart: RenewalConfig | None
    reload: RenewalConfig | None
    finetuning_lock: Path | None
    idle: IdleConfig | None = None

    @property
    def longest(self) -> int:
        """The largest speculation length, which limits the positions of a ratio by a label."""
        lengths = [one.knob for one in self.knobs if one.knob.role is Role.SPECULATION_LENGTH]
        values = [value for knob in lengths for value in knob.values if isinstance(value, int)]
        return max(values, default=0)


def load_service_config(path: Path, trace: Path | None = None) -> ServiceConfig:
    """Read a service's file; the arrivals of `trace` replace those of its load.

    Raises:
        ConfigError: it cannot be read, does not parse, or is not valid, such as a URL that is not
            on this machine; the message names the file, the key, and the nearest valid key.
    """
    where = str(path)
    table = toml.read(path, FILE_KEYS)
    demand(where, table, "name")
    path_only = "load" in table and [*table.get("latency", ())] == ["metrics"]
    needed = () if path_only else ("histogram",)
    latency = inner(f"{where}: latency", table, "latency", LATENCY_KEYS, *needed)
    failures = inner(f"{where}: failures", table, "failures", COUNTER_KEYS, "counter")
    process = _process(f"{where}: process", table)
    config = ServiceConfig(
        name=table["name"],
        url=_url(where, table["url"]) if "url" in table else "",
        version=table.get("version", "unknown"),
        knobs=_knobs(where, table),
        metrics=url_path(f"{where}: latency", latency.get("metrics", METRICS)),
        latency=histogram_of(f"{where}: latency", latency),
        failures=Series(failures.get("counter", ""), failures.get("labels")),
        exported=exported_metrics(where, table),
        json=json_numbers(where, table.get("json", [])),
        log=log_lines(f"{where}: log", table),
        process=process,
        cpu_time=table.get("cpu_time", True),
        always_busy=table.get("always_busy", False),
        load=load_of(f"{where}: load", table, trace),
        restart=_renewal(f"{where}: restart", table, "restart", None),
        reload=_renewal(f"{where}: reload", table, "reload", process),
        finetuning_lock=absolute(where, "finetuning_lock", table["finetuning_lock"])
        if "finetuning_lock" in table
        else None,
        idle=_idle(f"{where}: idle", table),
    )
    _demand_load(where, config)
    _demand_url(where, config, table)
    _demand_distinct(where, config)
    return config


def _url(where: str, text: str) -> str:
    """Return the service's URL without a slash. Raises ConfigError."""
    with reraised(ConfigError, InvalidInput, where):
        url = local_url(text, "write http://127.0.0.1:PORT")
    if url.path not in ("", "/"):
        raise ConfigError(
            f"{where}: url must end after the port", hint="give the path in each call"
        )
    return text.rstrip("/")


def _demand_load(where: str, config: ServiceConfig) -> None:
    """Raise ConfigError unless exactly one source reports the latency and counts the work."""
    log = config.log
    has_items = bool(log and log.has_items)
    if not config.latency.name and config.load is None and not (log and log.latency):
        raise ConfigError(
            f"{where} has no latency and no load",
            hint="add a table [latency] or [load], or a [log] whose pattern has (?P<latency_s>…)",
        )
    if has_items and (config.latency.name or config.load is not None):
        other = "[latency]" if config.load is None else "[load]"
        raise ConfigError(
            f"{where}: both {other} and the [log] count the work", hint="leave one of them out"
        )
    exported = config.exported
    effects = [one for one in config.knobs if one.effect is not None]
    if isinstance(config.load, RunLoad) and (
        exported.signal or exported.histograms or exported.ratios or exported.items.name or effects
    ):
        raise ConfigError(
            f"{where}: with a program as load, no counters of the service are read",
            hint="leave out signal, histogram, ratio, items and effect",
        )


def _demand_url(where: str, config: ServiceConfig, table: Mapping[str, Any]) -> None:
    """Raise ConfigError if HTTP is used without a url."""
    needing = [f"[{key}]" for key in HTTP_KEYS if key in table]
    needing += [f"the knob {one.knob.name}" for one in config.knobs if one.http]
    needing += ["[load] with a path"] if isinstance(config.load, OurLoad) else []
    for key in ("restart", "reload"):
        needing += [f"ready in [{key}]"] if table.get(key, {}).get("ready") else []
    if needing and not config.url:
        raise ConfigError(
            f"{where} has no url, and {needing[0]} needs one",
            hint='add url = "http://127.0.0.1:PORT"',
        )


def _demand_distinct(where: str, config: ServiceConfig) -> None:
    """Raise ConfigError if two tables use the same metric name."""
    exported = config.exported
    names = [*exported.histograms, *(one.name for one in exported.ratios), exported.signal]
    names += [one.metric.name for one in config.json]
    names += [] if config.log is None else config.log.metrics
    names += [] if config.finetuning_lock is None else [ProgramsSignal.signal.name]
    if isinstance(config.load, RunLoad):
        names += [one.name for one in config.load.program.metrics]
    for name in names:
        if name and names.count(name) > 1:
            raise ConfigError(
                f"{where}: two metrics have the name {name}", hint="rename one of them"
            )


def _knobs(where: str, table: Mapping[str, Any]) -> tuple[KnobCalls, ...]:
    """Return the knobs of the file. Raises ConfigError."""
    knobs = tuple(
        knob_calls(f"{where}: knob {n}", one) for n, one in enumerate(table.get("knob", []), 1)
    )
    refuse_misfits(where, [one.knob for one in knobs])
    written = [one for one in knobs if one.file is not None]
    _demand_renewal(where, table, written)
    files = [one.file.path for one in written if one.file is not None]
    if len(set(files)) < len(files):
        raise ConfigError(
            f"{where}: two knobs are written to one file", hint="give each knob its own file"
        )
    if len([one for one in written if one.file is not None and one.file.table is not None]) > 1:
        raise ConfigError(f"{where}: only one knob can have a table")
    return knobs


def _demand_renewal(where: str, table: Mapping[str, Any], written: Sequence[KnobCalls]) -> None:
    """Raise ConfigError if a file is written and nothing makes the service reload it."""
    restart = 'add [restart] with command = ["systemctl", "restart", "vllm"]'
    for one in written:
        at = f"{where}: {one.knob.name}"
        if not {"restart", "reload"} & table.keys():
            why = f"{at} is written to a file, but the service is not notified"
            raise ConfigError(why, hint=f"{restart}, or a [reload]")
        if one.knob.cost.restart and "restart" not in table:
            raise ConfigError(f"{at} needs a restart, but there is no [restart]", hint=restart)


def _renewal(
    where: str, table: Mapping[str, Any], key: str, process: ProcessConfig | None
) -> RenewalConfig | None:
    """Return the content of `[restart]` or `[reload]`; only a reload may be a signal.

    Raises ConfigError.
    """
    if key not in table:
        return None
    kinds = RENEWAL_KEYS if key == "restart" else {**RENEWAL_KEYS, "signal": str}
    entry = inner(where, table, key, kinds)
    if key == "restart":
        demand(where, entry, "command")
    elif ("command" in entry) is ("signal" in entry):
        raise ConfigError(f"{where} needs a command or a signal, one of them")
    name = entry.get("signal", "").removeprefix("SIG")
    if "signal" in entry and name not in RELOADS:
        raise ConfigError(
            f"{where}: the signal {entry['signal']!r} cannot reload a service",
            hint=f"choose {', '.join(RELOADS)}",
        )
    if name and process is None:
        raise ConfigError(
            f"{where}: the process for the signal is missing",
            hint='add [process] with unit = "nginx.service", or with pid_file and program',
        )
    ready = entry.get("ready", METRICS if key == "restart" and "url" in table else "")
    return RenewalConfig(
        argv(where, entry["command"]) if "command" in entry else (),
        name,
        url_path(where, ready) if ready else "",
        positive(where, entry, "seconds", RENEWAL_S),
    )


def _idle(where: str, table: Mapping[str, Any]) -> IdleConfig | None:
    """Return the content of `[idle]`. Raises ConfigError, also without a load of ours."""
    if "idle" not in table:
        return None
    entry = checked(where, table["idle"], IDLE_KEYS)
    if "path" not in table.get("load", {}):
        raise ConfigError(f"{where} needs a [load] with a path", hint="remove [idle], or add it")
    delay, knobs = entry.get("delay", ""), [one["name"] for one in table.get("knob", [])]
    if delay and delay not in knobs:
        raise ConfigError(f"{where}: there is no knob {delay!r}", hint="name a [[knob]]")
    if "unloaded" not in entry:
        return IdleConfig(None, delay)
    call = checked(f"{where}: unloaded", entry["unloaded"], UNLOADED_KEYS, "path", "json")
    path, steps = url_path(f"{where}: unloaded", call["path"]), tuple(call["json"].split("."))
    return IdleConfig(ReadCall(path, steps), delay)


def _process(where: str, table: Mapping[str, Any]) -> ProcessConfig | None:
    """Return the content of `[process]`; None without it. Raises ConfigError."""
    if "process" not in table:
        return None
    entry = checked(where, table["process"], PROCESS_KEYS)
    if not 1 <= entry.get("port", 1) <= 65535:
        raise ConfigError(f"{where}: port is {entry['port']}", hint="give 1 to 65535")
    for alone in ("unit", "port"):
        if alone in entry and len(entry) > 1:
            raise ConfigError(f"{where}: a {alone} needs no other keys", hint="leave out the rest")
    if "unit" in entry:
        return ProcessConfig(unit_name(where, entry["unit"]))
    if "port" in entry:
        return ProcessConfig(port=entry["port"])
    demand(where, entry, "pid_file", "program")
    pid_file = absolute(where, "pid_file", entry["pid_file"])
    return ProcessConfig(pid_file=pid_file, program=entry["program"])
