"""Attaches to the service that a file describes: its knobs, and the meter that the file chooses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from agents.host.local_http import LocalHttp
from agents.load.generator import HttpCaller
from agents.load.meter import LoadMeter
from agents.load.prometheus import ARRIVALS, PrometheusMeter
from agents.target.side import LiveSignal, Side
from agents.workloads.http.config import OurLoad, ServiceConfig, load_service_config
from agents.workloads.http.derived import DerivedLoadMeter, DerivedMeter, derived_metrics
from agents.workloads.http.exposition import CPU, Exposition
from agents.workloads.http.files import KnobInFile
from agents.workloads.http.knob_config import KnobCalls
from agents.workloads.http.knobs import HttpKnob, HttpKnobs, RestartableHttpKnobs
from agents.workloads.http.reading import HttpReading, UnlistedValue
from agents.workloads.http.restart import ServiceRestart
from agents.workloads.http.signals import GaugeSignal
from tuner.core import Clock, InvalidInput, Metric, Scope, Setting, TuningError

REPORT_S = 1.0
"""How old a text may be: most are made when asked for; some are kept for a moment."""


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Attach to the running service that `service:/PATH/FILE.toml` describes.

    Raises:
        ConfigError: the file cannot be read, or says what cannot be.
        InvalidInput: there is no absolute path in the spec, or the service tells no such metric.
        DeviceLost, ActuationError: the service does not answer, or not as the file says.
    """
    file = Path(spec.partition(":")[2])
    if not file.is_absolute():  # putting back must find it from any folder
        raise InvalidInput(f"{spec!r} names no absolute path", hint="write service:/PATH/FILE.toml")
    config = load_service_config(file)
    http = LocalHttp(config.url, f"the service {config.name}", "start it again, or see its log")
    try:
        return _opened(config, http, seed, clock)
    except TuningError:
        http.close()
        raise


def _opened(config: ServiceConfig, http: LocalHttp, seed: int, clock: Clock) -> Side:
    exposition = Exposition(http, config)
    actuator = _actuator(config, http, exposition, clock)
    with suppress(UnlistedValue):  # it is told when it is read; putting it back must be possible
        actuator.read()
    askable = config.load is not None and config.load.shape.rate_per_s is None
    signals: tuple[LiveSignal, ...] = ()
    if config.exported.signal:
        signals = (GaugeSignal(config.exported.signal, exposition, askable=askable),)
    return Side(
        name=config.name,
        kind="service",
        board=config.url,
        version=config.version,
        space=actuator.space,
        metrics=_metrics(config, exposition),
        actuator=actuator,
        meter=_meter(config, exposition, actuator, clock, seed),
        cannot={}
        if exposition.tells_cpu
        else {"cpu_time_ms": f"{config.name} tells no counter {CPU} (with its # TYPE)"},
        source=_source(config),
        signals=signals,
    )


def _actuator(
    config: ServiceConfig, http: LocalHttp, exposition: Exposition, clock: Clock
) -> HttpKnobs:
    started: Callable[[], str] = exposition.started if exposition.tells_start else str
    restart = None
    if config.restart is not None:
        restart = ServiceRestart(http, config.restart, started, clock)
    knobs = [_knob(http, one, clock) for one in config.knobs]
    if exposition.tells_start:
        return RestartableHttpKnobs(http, knobs, restart, started)
    return HttpKnobs(http, knobs, restart)


def _knob(http: LocalHttp, one: KnobCalls, clock: Clock) -> HttpKnob | KnobInFile:
    if one.file is not None:
        reading = None if one.read is None else HttpReading(http, one.knob, one.read)
        return KnobInFile(one.knob, one.file, reading)
    assert one.set is not None and one.read is not None
    return HttpKnob(http, one.knob, (one.set, one.read), clock)


def _meter(
    config: ServiceConfig, exposition: Exposition, actuator: HttpKnobs, clock: Clock, seed: int
) -> PrometheusMeter | LoadMeter | DerivedMeter:
    effects = {one.knob.name: one.effect for one in config.knobs if one.effect is not None}

    def in_force() -> Setting | None:
        return None if actuator.followed() is not None else actuator.read()

    derived = (config.exported, effects, exposition.snapshot, in_force)
    extra = (
        config.exported.signal or config.exported.histograms or config.exported.ratios or effects
    )
    counting = exposition.counting
    if config.load is None:
        meter = PrometheusMeter(exposition.figures, counting, clock, REPORT_S)
        return DerivedMeter(meter, *derived) if extra or config.exported.items.name else meter
    connect = _callers(config.url, config.load)
    sent = LoadMeter(connect, config.load.shape, counting, clock, seed)
    return DerivedLoadMeter(sent, *derived) if extra or config.exported.items.name else sent


def _callers(url: str, load: OurLoad) -> Callable[[], HttpCaller]:
    """Return what makes a caller; all of them take the bodies in turn."""
    parts, lock = urlsplit(url), threading.Lock()
    bodies: Iterator[bytes] = itertools.cycle(load.bodies)

    def deal() -> bytes:
        with lock:
            return next(bodies)

    def connect() -> HttpCaller:
        return HttpCaller(
            parts.hostname or "",
            parts.port or 80,
            load.path,
            method=load.method,
            body=deal if len(load.bodies) > 1 else load.bodies[0],
            timeout_s=load.timeout_s,
        )

    return connect


def _metrics(config: ServiceConfig, exposition: Exposition) -> tuple[Metric, ...]:
    names = ["latency_p50_ms", "latency_p99_ms", "throughput_per_s"]
    names += [] if config.load is None else ["latency_mean_ms"]
    by_itself = config.load is None and not config.always_busy
    arriving = by_itself or (config.load is not None and config.load.shape.rate_per_s is not None)
    cpu = [Metric("cpu_time_ms", scope=Scope.PROCESS)] if exposition.tells_cpu else []
    return (
        *(Metric(name, scope=Scope.SERVICE) for name in names),
        *([ARRIVALS] if arriving else []),
        *cpu,
        *derived_metrics(config.exported, config.longest),
    )


def _source(config: ServiceConfig) -> str:
    if config.load is not None:
        return f"our load generator, {config.load.shape}"
    return f"the histogram {config.latency.name} of {config.name}"
