"""Strict reader of a service's file: how the service is set and measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from agents.finetuning.programs import ProgramsSignal
from agents.host.http.local_http import local_url
from agents.host.processes.service_process import RELOADS
from agents.host.service_files import (
    AbsolutePath,
    Argv,
    Positive,
    UnitName,
    refuse_duplicates,
    refuse_misfits,
    url_path,
)
from agents.workloads.http.knob_config import KnobCalls
from agents.workloads.http.load_config import LoadConfig
from agents.workloads.http.metric_config import (
    METRICS,
    CounterTable,
    ExportedMetrics,
    ExportedRatio,
    HistogramTable,
    JsonNumber,
    JsonPlace,
    LatencyTable,
    LogLines,
    Series,
    SignalTable,
)
from tuner.core import ConfigError, InvalidInput, Role, reraised
from tuner.typed_toml import Filled, Table, load

RENEWAL_S = 60.0
ADD_RESTART = 'add [restart] with command = ["systemctl", "restart", "vllm"]'


def _reload_signal(text: str) -> str:
    """Return the name of a signal that reloads a service, without SIG. Raises ConfigError."""
    name = text.removeprefix("SIG")
    if name not in RELOADS:
        raise ConfigError(
            f"the signal {text!r} cannot reload a service", hint=f"choose {', '.join(RELOADS)}"
        )
    return name


def _service_url(text: str) -> str:
    """Return the service's URL without a slash. Raises InvalidInput."""
    if local_url(text, "write http://127.0.0.1:PORT").path not in ("", "/"):
        raise ConfigError("url must end after the port", hint="give the path in each call")
    return text.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class RenewalConfig(Table):
    """How a service reloads its files: a command or a signal, and the time until it must be ready.

    Raises:
        ConfigError: it has neither a command nor a signal, or both.
    """

    command: Argv = ()
    signal: Annotated[str, AfterValidator(_reload_signal)] = ""
    ready: Annotated[str, AfterValidator(lambda path: path and url_path(path))] | None = None
    seconds: Positive = RENEWAL_S

    def __post_init__(self) -> None:
        if bool(self.command) is bool(self.signal):
            hint = "leave one out" if self.command else "add command = …"
            raise ConfigError(" needs a command or a signal, one of them", hint=hint)

    def __str__(self) -> str:
        return " ".join(self.command) if self.command else f"SIG{self.signal}"


@dataclass(frozen=True, kw_only=True)
class ProcessConfig(Table):
    """The source of the service's CPU time: a systemd unit, or a process and all its children.

    The process is that of a PID file, or the one that listens at a port.

    Raises:
        ConfigError: it names no process, or more than one.
    """

    unit: UnitName = ""
    port: int | None = None
    pid_file: AbsolutePath | None = None
    program: str = ""

    def __post_init__(self) -> None:
        if self.port is not None and not 1 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}", hint="give 1 to 65535")
        given = [k for k in ("unit", "port", "pid_file", "program") if getattr(self, k)]
        for alone in ("unit", "port"):
            if alone in given and len(given) > 1:
                raise ConfigError(f"a {alone} needs no other keys", hint="leave out the rest")
        for key in ("pid_file", "program"):
            if key not in given and not (self.unit or self.port):
                raise ConfigError(f" has no {key}", hint=f"add {key} = …")


@dataclass(frozen=True, kw_only=True)
class IdleConfig(Table):
    """How a service shows that its model has left memory, if it does, and the knob of that delay."""

    unloaded: JsonPlace | None = None
    delay: str = ""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig(Table):
    """The content of a service's file. Without a `url` nothing uses HTTP.

    Raises:
        InvalidInput: its parts contradict each other, or one of them is missing.
    """

    name: Filled
    url: Annotated[str, AfterValidator(_service_url)] = ""
    version: str = "unknown"
    knobs: Annotated[tuple[KnobCalls, ...], Field(alias="knob")] = ()
    latency_table: Annotated[LatencyTable | None, Field(alias="latency")] = None
    failures_table: Annotated[CounterTable | None, Field(alias="failures")] = None
    items: CounterTable | None = None
    signal: SignalTable | None = None
    histogram: tuple[HistogramTable, ...] = ()
    ratio: tuple[ExportedRatio, ...] = ()
    json: tuple[JsonNumber, ...] = ()
    log: LogLines | None = None
    process: ProcessConfig | None = None
    cpu_time: bool = True
    always_busy: bool = False
    load: LoadConfig | None = None
    restart: RenewalConfig | None = None
    reload: RenewalConfig | None = None
    finetuning_lock: AbsolutePath | None = None
    idle: IdleConfig | None = None

    def __post_init__(self) -> None:
        self._demand_knobs()
        self._demand_renewal()
        self._demand_load()
        self._demand_idle()
        if not self.url and (needing := next(self._needing(), None)):
            raise ConfigError(
                f" has no url, and {needing} needs one", hint='add url = "http://127.0.0.1:PORT"'
            )
        refuse_duplicates(*self._names())

    def _demand_knobs(self) -> None:
        """Raise InvalidInput if knobs contradict each other."""
        refuse_misfits([one.knob for one in self.knobs])
        files = [one.write.file for one in self.knobs if one.write is not None]
        if len(set(files)) < len(files):
            raise ConfigError("two knobs are written to one file", hint="give each its own file")
        if len([one for one in self.knobs if one.table is not None]) > 1:
            raise ConfigError("only one knob can have a table", hint="leave out the others")

    def _demand_renewal(self) -> None:
        """Raise ConfigError if a file is written and nothing makes the service reload it."""
        if self.restart is not None and self.restart.signal:
            raise ConfigError("restart: a restart needs a command, not a signal", hint=ADD_RESTART)
        if self.reload is not None and self.reload.signal and self.process is None:
            raise ConfigError(
                "reload: the process for the signal is missing",
                hint='add [process] with unit = "nginx.service", or with pid_file and program',
            )
        for one in self.knobs:
            if one.write is not None and (self.restart, self.reload) == (None, None):
                why = f"{one.name} is written to a file, but the service is not notified"
                raise ConfigError(why, hint=f"{ADD_RESTART}, or a [reload]")
            if one.write is not None and one.restart and self.restart is None:
                why = f"{one.name} needs a restart, but there is no [restart]"
                raise ConfigError(why, hint=ADD_RESTART)

    def _demand_load(self) -> None:
        """Raise ConfigError unless exactly one source reports the latency and counts the work."""
        log, exported, latency = self.log, self.exported, self.latency_table
        path_only = self.load is not None and latency == LatencyTable(metrics=self.metrics)
        if latency is not None and not latency.histogram and not path_only:
            raise ConfigError("latency has no histogram", hint="add histogram = …")
        has_items = bool(log and log.has_items)
        if not self.latency.name and self.load is None and not (log and log.latency):
            raise ConfigError(
                " has no latency and no load",
                hint="add a table [latency] or [load], or a [log] whose pattern has (?P<latency_s>…)",
            )
        if has_items and (self.latency.name or self.load is not None):
            other = "[latency]" if self.load is None else "[load]"
            raise ConfigError(
                f"both {other} and the [log] count the work", hint="leave one of them out"
            )
        effects = any(one.effect is not None for one in self.knobs)
        if self.load is not None and self.load.run and (exported != ExportedMetrics() or effects):
            raise ConfigError(
                "with a program as load, no counters of the service are read",
                hint="leave out signal, histogram, ratio, items and effect",
            )

    def _demand_idle(self) -> None:
        """Raise ConfigError if `[idle]` lacks a load of ours, or its knob."""
        if self.idle is None:
            return
        if self.load is None or not self.load.path:
            raise ConfigError("idle needs a [load] with a path", hint="remove [idle], or add it")
        if self.idle.delay not in ("", *(one.name for one in self.knobs)):
            raise ConfigError(f"idle: there is no knob {self.idle.delay!r}", hint="name a [[knob]]")

    def _needing(self) -> Iterator[str]:
        """Yield the parts that use HTTP, as text."""
        tables = ("latency", "failures", "items", "signal", "histogram", "ratio", "json")
        parts = (self.latency_table, self.failures_table, self.items, self.signal)
        given = (*parts, self.histogram, self.ratio, self.json)
        yield from (f"[{key}]" for key, one in zip(tables, given, strict=True) if one)
        yield from (f"the knob {one.name}" for one in self.knobs if one.http)
        if self.load is not None and self.load.path:
            yield "[load] with a path"
        for key, renewal in (("restart", self.restart), ("reload", self.reload)):
            if renewal is not None and renewal.ready:
                yield f"ready in [{key}]"

    def _names(self) -> Iterator[str]:
        """Yield the names of the declared metrics."""
        yield from self.exported.histograms
        yield from [*(one.name for one in self.ratio), *(one.name for one in self.json)]
        yield from [self.signal.name] if self.signal else []
        yield from self.log.metrics if self.log else ()
        yield from [ProgramsSignal.signal.name] if self.finetuning_lock else []
        yield from (one.name for one in self.load.metric) if self.load else ()

    @property
    def metrics(self) -> str:
        """The path of the service's Prometheus text."""
        return (self.latency_table and self.latency_table.metrics) or METRICS

    @property
    def latency(self) -> Series:
        """The histogram of the latency, if it has one."""
        return Series() if self.latency_table is None else self.latency_table.series

    @property
    def failures(self) -> Series:
        """The counter of failed requests, if it has one."""
        return Series() if self.failures_table is None else self.failures_table.series

    @cached_property
    def exported(self) -> ExportedMetrics:
        """The further metrics of the service's Prometheus text."""
        signal = self.signal
        return ExportedMetrics(
            items=Series() if self.items is None else self.items.series,
            signal="" if signal is None else signal.name,
            load=Series() if signal is None else Series(signal.gauge, signal.labels),
            histograms={one.name: one.series for one in self.histogram},
            ratios=self.ratio,
        )

    @property
    def longest(self) -> int:
        """The largest speculation length, which limits the positions of a ratio by a label."""
        lengths = [one for one in self.knobs if one.role is Role.SPECULATION_LENGTH]
        values = [value for knob in lengths for value in knob.values if isinstance(value, int)]
        return max(values, default=0)


def load_service_config(path: Path, trace: Path | None = None) -> ServiceConfig:
    """Read a service's file; the arrivals of `trace` replace those of its load.

    Raises:
        ConfigError: it cannot be read, does not parse, or is not valid, such as a URL that is not
            on this machine; the message names the file, the line, the key, and the nearest valid key.
    """
    config = load(path, ServiceConfig)
    sent = config.load
    with reraised(ConfigError, InvalidInput, f"{path}: load"):
        if trace is not None:
            if sent is None or not sent.path:
                raise ConfigError(
                    "no requests of ours are sent, so it cannot use a trace",
                    hint="add a table [load] with a path",
                )
            sent = replace(sent, trace=trace)
        if sent is not None and sent.path:
            _ = sent.shape
    return config if trace is None else replace(config, load=sent)
