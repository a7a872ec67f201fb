"""Attaches to the service that a file describes: its knobs, and the meter that the file chooses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from agents.finetuning.programs import ProgramsSignal
from agents.host.http.local_http import LocalHttp
from agents.host.processes.ownership import WorkloadIdentity
from agents.host.processes.program_runs import RUNS, RunMeter
from agents.host.processes.service_process import (
    PortProcess,
    ProcessTree,
    ServiceProcess,
    UnitProcess,
)
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter, Totals
from agents.load.prometheus import ARRIVALS, PrometheusWindow
from agents.load.streaming import StreamMeter, stream_metrics
from agents.load.window import WindowMeter
from agents.target.side import IdleWorkload, LiveSignal, Side
from agents.workloads.http.config import ProcessConfig, ServiceConfig, load_service_config
from agents.workloads.http.connections import ConnectionsWindow
from agents.workloads.http.derived import DerivedLoadMeter, DerivedMeter, derived_metrics
from agents.workloads.http.exposition import CPU, Exposition
from agents.workloads.http.files import KnobInFile
from agents.workloads.http.joined import counting_all, joined
from agents.workloads.http.json_meter import JsonWindow
from agents.workloads.http.knob_config import KnobCalls
from agents.workloads.http.knobs import HttpKnob, ServiceKnobs, ServiceRenewal
from agents.workloads.http.load_config import ANSWER_S, LoadConfig
from agents.workloads.http.log_meter import MEAN, LogWindow
from agents.workloads.http.metric_config import METRICS
from agents.workloads.http.reading import (
    ReadValue,
    UnlistedValue,
    value_in_answer,
    value_in_output,
)
from agents.workloads.http.signals import GaugeSignal, idle_state
from agents.workloads.http.table_fallback import ACCEPTED, TableFallback
from agents.workloads.http.units import KnobInUnit
from tuner.core import (
    ActuationError,
    Clock,
    Context,
    DeviceLost,
    InvalidInput,
    Meter,
    Metric,
    Scope,
    Setting,
    TuningError,
)

REPORT_S = 1.0
"""Age in s that a service's text may have: most are made on request, some are cached briefly."""
FALL_BACK = "the fall-back to plain decoding"
TRACE = "trace:"


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Attach to the running service of `service:/PATH/FILE.toml`.

    With `#trace:/PATH/FILE.csv` after it, its load has that trace's arrivals.

    Raises:
        ConfigError: the file cannot be read, or is not valid.
        InvalidInput: the spec has no absolute path, or the service does not report a metric of the file.
        DeviceLost, ActuationError: the service does not answer, or not as the file describes.
    """
    name, _, more = spec.partition(":")[2].partition("#")
    file = Path(name)
    if not file.is_absolute():  # a restore must find the file from any working directory
        raise InvalidInput(f"{spec!r} needs an absolute path", hint="write service:/PATH/FILE.toml")
    config = load_service_config(file, trace_of(more))
    service = Service(config, clock)
    try:
        return service.side(seed)
    except TuningError:
        service.close()
        raise


def trace_of(fragment: str) -> Path | None:
    """Return the trace that follows a service's file after a `#`. Raises InvalidInput."""
    if fragment and not fragment.startswith(TRACE):
        raise InvalidInput(
            f"cannot read the part after the #: {fragment!r}", hint="write #trace:FILE.csv"
        )
    return Path(fragment.removeprefix(TRACE)) if fragment else None


class Service:
    """The file's description of a service, and the connections to it: HTTP, its processes, its metrics."""

    def __init__(self, config: ServiceConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        who, hint = f"the service {config.name}", "start it, or check its log"
        self._http = LocalHttp(config.url, who, hint) if config.url else None
        self._process = _process(config.process)
        self._exposition: Exposition | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            self._http.close()

    def side(self, seed: int) -> Side:
        """Return the service's side. Raises as `attach`."""
        config = self._config
        if self._http is not None:
            self._exposition = Exposition(self._http, config)
        actuator = self._actuator()
        with suppress(UnlistedValue):  # a service at an unlisted value can still be restored
            actuator.read()
        effects = {one.knob.name for one in config.knobs if one.effect is not None}
        has_cpu_time = self._has_cpu_time()
        return Side(
            name=config.name,
            kind="service",
            board=config.url or config.name,
            version=config.version,
            space=actuator.space,
            metrics=_metrics(config, has_cpu_time=has_cpu_time),
            actuator=actuator,
            meter=self._meter(actuator, seed),
            cannot=self._cannot(has_cpu_time=has_cpu_time),
            unproven={k: why for k, why in actuator.unproven().items() if k not in effects},
            source=_source(config),
            signals=self._signals(),
            warm_up_s=(config.load and config.load.warm_up_s) or 0.0,
            idle=self._idle(),
            identity=self._identity(),
        )

    def _idle(self) -> IdleWorkload | None:
        """Return the look at an idle service; None without `[idle]`."""
        config, http = self._config.idle, self._http
        if config is None or http is None:
            return None
        look = partial(idle_state, http, config.unloaded, self._signals())
        return IdleWorkload(look, config.delay)

    def _cannot(self, *, has_cpu_time: bool) -> dict[str, str]:
        """Return the missing metrics and abilities, with the reasons."""
        cannot = {} if has_cpu_time else {"cpu_time_ms": self._why_no_cpu()}
        if any(one.has_length_table for one in self._config.knobs) and self._fallback() is None:
            cannot[FALL_BACK] = f"the file has no [[ratio]] {ACCEPTED}, so a collapse does not show"
        return cannot

    def _identity(self) -> WorkloadIdentity:
        """Return how to identify the service's processes: from its file, its port, its start."""
        exposition = self._exposition
        has_start = exposition is not None and exposition.has_start_time
        identity = WorkloadIdentity() if self._process is None else self._process.identity()
        return replace(
            identity,
            port=urlsplit(self._config.url).port or 0,
            started_s=exposition.started_s if exposition is not None and has_start else None,
        )

    def _actuator(self) -> ServiceKnobs:
        """Return the actuator, restartable if the service's start time is known."""
        config, exposition = self._config, self._exposition
        started: Callable[[], str] | None = None
        if self._process is not None:
            started = self._process.started
        elif exposition is not None and exposition.has_start_time:
            started = exposition.started
        usual = METRICS if self._http is not None else ""
        restart, reload = (
            None
            if one is None
            else ServiceRenewal(
                one,
                ready if one.ready is None else one.ready,
                self._http,
                self._process,
                started or str,
                self._clock,
            )
            for one, ready in ((config.restart, usual), (config.reload, ""))
        )
        knobs = [self._knob(one) for one in config.knobs]
        fallback, renewals = self._fallback(), (restart, reload)
        calls = (self.close, self._demand_answer)
        return ServiceKnobs(knobs, *renewals, *calls, started, fallback)

    def _demand_answer(self) -> None:
        """Return if the service answers a request of our load, or shows its metrics.

        Raises:
            DeviceLost, ActuationError: it does not answer yet.
        """
        load, http = self._config.load, self._http
        if load is not None and load.path:
            caller = _callers(self._config.url, load)()
            wrong = caller.send()
            caller.close()
            if wrong:
                raise ActuationError(f"{self._config.name} does not answer {load.path}: {wrong}")
        elif http is not None:
            try:
                http.call("GET", self._config.metrics)
            except DeviceLost:
                raise
            except ActuationError:  # a program's load needs no metrics, so any answer is enough
                if load is None:
                    raise

    def _fallback(self) -> TableFallback | None:
        """Return the fallback from a table of draft lengths; None without a table, or without counters."""
        exposition, ratios = self._exposition, self._config.exported.ratios
        if exposition is None or not any(ratio.name == ACCEPTED for ratio in ratios):
            return None
        lengths = [one.knob for one in self._config.knobs if one.has_length_table]
        return TableFallback(exposition.snapshot, lengths[0], self._clock) if lengths else None

    def _knob(self, one: KnobCalls) -> HttpKnob | KnobInFile | KnobInUnit:
        """Return a knob with its way to set and read it."""
        if one.unit is not None:
            return KnobInUnit(one.knob, one.unit, self._clock)
        reading: ReadValue | None = None
        if one.read is not None and one.read.command:
            reading = partial(value_in_output, one.knob, one.read)
        elif one.read is not None:
            assert self._http is not None
            reading = partial(value_in_answer, self._http, one.knob, one.read)
        if one.write is not None:
            return KnobInFile(one.knob, one.write, one.table, self._clock, reading)
        assert one.set is not None and reading is not None and self._http is not None
        return HttpKnob(self._http, one.knob, one.set, reading, self._clock)

    def _meter(self, actuator: ServiceKnobs, seed: int) -> Meter:
        """Return the meter of the work, joined with those of JSON and log."""
        config, exposition = self._config, self._exposition
        more: list[Meter] = []
        if exposition is not None and exposition.counts:
            more.append(WindowMeter(partial(ConnectionsWindow, exposition, self._clock)))
        if config.json:
            assert self._http is not None
            more.append(WindowMeter(partial(JsonWindow, self._http, config.json)))
        if config.log is not None and not config.log.has_items:
            more.append(WindowMeter(partial(LogWindow, config.log, None, self._clock)))
        return joined(self._counting_meter(actuator, seed), more)

    def _counting_meter(self, actuator: ServiceKnobs, seed: int) -> Meter:
        """Return the meter that counts the work."""
        config, exposition, clock = self._config, self._exposition, self._clock
        counting = counting_all(None if exposition is None else exposition.counting, self._process)
        load = config.load
        if load is not None and (program := load.program) is not None:
            return RunMeter(lambda: program, load.runs or RUNS, clock, counting)
        if config.log is not None and config.log.has_items:
            return WindowMeter(partial(LogWindow, config.log, counting, clock))
        assert exposition is not None
        return self._text_meter(exposition, counting, actuator, seed)

    def _text_meter(
        self,
        exposition: Exposition,
        counting: Callable[[], Totals],
        actuator: ServiceKnobs,
        seed: int,
    ) -> Meter:
        """Return the meter of our load, or of the service's own histogram, with its further metrics."""
        config, clock = self._config, self._clock
        effects = {one.knob.name: one.effect for one in config.knobs if one.effect is not None}

        def in_force(load: Context) -> Setting | None:
            plan = actuator.followed()
            if plan is None:
                return actuator.read()
            return plan.rows[plan.row(load)].setting if plan.by in load else None

        exported = config.exported
        derived = (exported, effects, exposition.snapshot, in_force)
        extra = exported.signal or exported.histograms or exported.ratios or effects
        extra = extra or exported.items.name
        if config.load is not None:
            connect, shape = _callers(config.url, config.load), config.load.shape
            loaded = (connect, shape, counting, clock, seed, exported.items.name)
            limits = config.load.good
            sent = StreamMeter(*loaded, limits=limits) if config.load.stream else LoadMeter(*loaded)
            return DerivedLoadMeter(sent, *derived) if extra else sent
        reported = partial(PrometheusWindow, exposition.figures, counting, clock, REPORT_S)
        meter = WindowMeter(reported)
        return DerivedMeter(meter, *derived) if extra else meter

    def _signals(self) -> tuple[LiveSignal, ...]:
        """Return the gauge's signal and that of a fine-tuning job."""
        config = self._config
        lock = config.finetuning_lock
        beside = () if lock is None else (ProgramsSignal(lock),)
        name, load = config.exported.signal, config.load
        if not name:
            return beside
        assert self._exposition is not None
        askable = load is not None and load.shape.closed
        followed = any(one.table is not None and one.table.by == name for one in config.knobs)
        return (GaugeSignal(name, self._exposition, askable=askable, followed=followed), *beside)

    def _has_cpu_time(self) -> bool:
        """Return whether a source of the service's CPU time reports a value."""
        if self._process is not None:
            return self._process.cpu_s() is not None
        return self._exposition is not None and self._exposition.has_cpu_time

    def _why_no_cpu(self) -> str:
        """Return the reason why the CPU time is missing."""
        if self._process is not None:
            return f"systemd counts no CPU time of {self._config.name} (set CPUAccounting=yes)"
        if not self._config.cpu_time:
            return f"cpu_time = false in the file of {self._config.name}, and it has no [process]"
        return f"{self._config.name} has no counter {CPU}, and has no [process]"


def _process(config: ProcessConfig | None) -> ServiceProcess | None:
    """Return the source of the service's CPU time; None without `[process]`."""
    if config is None:
        return None
    if config.pid_file is not None:
        return ProcessTree(config.pid_file, config.program)
    return UnitProcess(config.unit) if config.unit else PortProcess(config.port or 0)


def _callers(url: str, load: LoadConfig) -> Callable[..., HttpCaller]:
    """Return a factory of callers; all callers send the bodies in turn."""
    parts, lock = urlsplit(url), threading.Lock()
    bodies: Iterator[bytes] = itertools.cycle(load.sent)

    def deal() -> bytes:
        with lock:
            return next(bodies)

    def connect(seen: Callable[[bytes], None] | None = None) -> HttpCaller:
        return HttpCaller(
            parts.hostname or "",
            parts.port or 80,
            load.path,
            method=load.method or "POST",
            body=deal if len(load.sent) > 1 else load.sent[0],
            headers=load.headers,
            timeout_s=load.timeout_s or ANSWER_S,
            seen=seen,
        )

    return connect


def _metrics(config: ServiceConfig, *, has_cpu_time: bool) -> tuple[Metric, ...]:
    """Return the metrics that the file lets the service have."""
    cpu = [Metric("cpu_time_ms", scope=Scope.PROCESS)] if has_cpu_time else []
    more = [one.metric for one in config.json]
    if config.log is not None:
        more += config.log.listed
    if config.load is not None and config.load.run:
        printed = [one.metric for one in config.load.metric]
        runs = [Metric(name, scope=Scope.PROCESS) for name in ("latency_ms", "throughput_per_s")]
        return (*runs, *cpu, *printed, *more)
    streamed: tuple[Metric, ...] = ()
    if config.load is not None and config.load.stream:
        streamed = stream_metrics(bool(config.load.good), config.load.shape.closed)
    names = ["latency_p50_ms", "latency_p99_ms", "throughput_per_s"]
    by_log = config.log is not None and config.log.has_items
    names += [MEAN.name] if by_log or config.load is not None else []
    by_itself = config.load is None and not config.always_busy
    arriving = by_itself or (config.load is not None and not config.load.shape.closed)
    return (
        *(Metric(name, scope=Scope.SERVICE) for name in names),
        *([ARRIVALS] if arriving else []),
        *streamed,
        *cpu,
        *derived_metrics(config.exported, config.longest),
        *more,
    )


def _source(config: ServiceConfig) -> str:
    """Return the origin of the service's numbers as text."""
    if config.load is not None and config.load.run:
        return f"{config.load.runs or RUNS} complete runs of {config.load.run[0]} per window"
    if config.load is not None:
        return f"our load generator, {config.load.shape}"
    if config.log is not None and config.log.has_items:
        return f"the log {config.log.file.name} of {config.name}"
    return f"the histogram {config.latency.name} of {config.name}"
