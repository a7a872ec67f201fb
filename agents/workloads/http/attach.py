"""Attaches to the service that a file describes: its knobs, and the meter that the file chooses."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from agents.host.local_http import LocalHttp
from agents.load.generator import HttpCaller
from agents.load.meter import LoadMeter
from agents.load.prometheus import ARRIVALS, PrometheusMeter
from agents.target.side import Side
from agents.workloads.http.config import OurLoad, ServiceConfig, load_service_config
from agents.workloads.http.exposition import CPU, Exposition
from agents.workloads.http.knobs import HttpKnob, HttpKnobs, RestartableHttpKnobs, UnlistedValue
from tuner.core import Clock, InvalidInput, Metric, Scope, TuningError

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
    knobs = [HttpKnob(http, calls, clock) for calls in config.knobs]
    actuator = (
        RestartableHttpKnobs(http, knobs, exposition.started)
        if exposition.tells_start
        else HttpKnobs(http, knobs)
    )
    with suppress(UnlistedValue):  # it is told when it is read; putting it back must be possible
        actuator.read()
    meter: LoadMeter | PrometheusMeter
    if config.load is not None:
        meter = LoadMeter(
            partial(_caller, config.url, config.load),
            config.load.shape,
            exposition.counting,
            clock,
            seed,
        )
    else:
        meter = PrometheusMeter(exposition.figures, exposition.counting, clock, REPORT_S)

    return Side(
        name=config.name,
        kind="service",
        board=config.url,
        version=config.version,
        space=actuator.space,
        metrics=_metrics(config, exposition),
        actuator=actuator,
        meter=meter,
        cannot={}
        if exposition.tells_cpu
        else {"cpu_time_ms": f"{config.name} does not tell {CPU}"},
        source=_source(config),
    )


def _caller(url: str, load: OurLoad) -> HttpCaller:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    return HttpCaller(host, port, load.path, method=load.method, body=load.body)


def _metrics(config: ServiceConfig, exposition: Exposition) -> tuple[Metric, ...]:
    names = ["latency_p50_ms", "latency_p99_ms", "throughput_per_s"]
    names += [] if config.load is None else ["latency_mean_ms"]
    arriving = config.load is None or config.load.shape.rate_per_s is not None
    cpu = [Metric("cpu_time_ms", scope=Scope.PROCESS)] if exposition.tells_cpu else []
    return (
        *(Metric(name, scope=Scope.SERVICE) for name in names),
        *([ARRIVALS] if arriving else []),
        *cpu,
    )


def _source(config: ServiceConfig) -> str:
    if config.load is not None:
        return f"our load generator, {config.load.shape}"
    return f"the histogram {config.latency.name} of {config.name}"
