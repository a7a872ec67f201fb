"""The service file of a model server, with which `service:/PATH/FILE.toml` measures it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.load.exposition import declared
from agents.workloads.http.llm.detection import KNOBS, ServedModel
from agents.workloads.http.llm.engines import LlmEngine
from agents.workloads.http.llm.requests import RequestedLoad
from tuner.core import InvalidInput, Knob
from tuner.typed_toml import to_toml

ANSWER_S = 300
OPEN_LOOP_CALLERS = 256
"""More than a server decodes at once: TTFT counts from the moment a caller sends."""
UNLOADED = "unloaded_share"
"""The share of a window in which the model was not in memory: the proof of an unload delay."""
LOAD_HINT = "add --generate-load rate=2,prompt=64-512,output=32-128"


@dataclass(frozen=True, slots=True)
class LlmProcess:
    """The process that serves: its systemd unit, or the port at which it listens."""

    unit: str = ""
    port: int = 0


def service_text(
    server: ServedModel,
    process: LlmProcess,
    load: RequestedLoad | None = None,
    bodies: Path | None = None,
    good: Mapping[str, float] | None = None,
) -> str:
    """Return the file's text. Without a load the server's own traffic is measured.

    Raises:
        InvalidInput: its traffic cannot be measured, because a metric is missing or renamed.
    """
    return "\n".join([*_lines(server, process, load, bodies, good or {}), ""])


def available(server: ServedModel, metric: str) -> str:
    """Return the name of a histogram that the server has; empty if the engine has no such metric.

    Raises:
        InvalidInput: the server does not show it under any of the engine's names.
    """
    names = server.engine.histograms.get(metric, ())
    there = declared(server.text, "histogram")
    declared_name = next((name for name in names if name in there), "")
    if names and not declared_name:
        raise _without(server, "histogram", names)
    return declared_name


def shown_by(engine: LlmEngine) -> str:
    """Return the next step for a server without metrics."""
    port = "give the server's own port if a proxy is in front"
    return f"{engine.enable}, or {port}" if engine.enable else port


def _without(server: ServedModel, kind: str, names: Sequence[str]) -> InvalidInput:
    """Return the error for a missing metric: no metrics at all, no request yet, or another name."""
    engine, named = server.engine, " or ".join(map(repr, names))
    instead = f"; or {LOAD_HINT}" if engine.completions else ""
    if server.silent:
        return InvalidInput(
            f"{engine.title} at {server.url} shows no metrics: {server.silent}",
            hint=f"{shown_by(engine)}{instead}",
        )
    if server.fresh:
        return InvalidInput(
            f"{engine.title} at {server.url} shows no {kind} {named} before its first request",
            hint=f"send it a request, then run this again{instead}",
        )
    shown = ", ".join(declared(server.text, kind)) or "none"
    return InvalidInput(
        f"{engine.title} {server.version} at {server.url} has no {kind} {named}",
        hint=f"{engine.enable or 'it may be renamed'}; available: {shown}; or describe the server in "
        "a file: --workload service:/PATH/FILE.toml",
    )


def _counts(server: ServedModel, kind: str, name: str) -> bool:
    """Return whether a server shows a metric; False if it shows no metrics, or none yet.

    Raises:
        InvalidInput: it has the metric by another name.
    """
    if not name or not server.text:
        return False
    if re.search(rf"^{re.escape(name)}[ {{]", server.text, re.MULTILINE):
        return True
    if server.fresh:
        return False
    raise _without(server, kind, (name,))


def _lines(
    server: ServedModel,
    process: LlmProcess,
    load: RequestedLoad | None,
    bodies: Path | None,
    good: Mapping[str, float],
) -> Iterator[str]:
    """Yield the lines of the file. Raises InvalidInput."""
    engine = server.engine
    yield f"# {engine.title} {server.version}; names as of {engine.title} {engine.version}".rstrip()
    yield f"name = {to_toml(engine.name)}"
    yield f"url = {to_toml(server.url)}"
    yield f"version = {to_toml(f'{server.version} {server.model}'.strip())}"
    if process.unit or process.port:
        own = f"unit = {to_toml(process.unit)}" if process.unit else f"port = {process.port}"
        yield f"\n[process]\n{own}"
    else:
        yield "cpu_time = false             # the process that serves is not known"
    if load is None:
        yield from _watched(server)
    else:
        yield from _sent(server, load, bodies, good)
    if _counts(server, "counter", engine.tokens):
        yield f"\n[items]                      # output tokens\ncounter = {to_toml(engine.tokens)}"
    if _counts(server, "gauge", engine.running):
        yield f'\n[signal]\nname = "decoding_requests"\ngauge = {to_toml(engine.running)}'
    yield from _explaining(server)
    for knob in server.knobs:
        yield from _knob(knob)


def _knob(knob: Knob) -> Iterator[str]:
    """Yield the table of a knob of our proxy, which answers once it is in force."""
    yield f"\n[[knob]]\nname = {to_toml(knob.name)}\nvalues = {to_toml(list(knob.values))}"
    yield f"default = {to_toml(knob.default)}\nrole = {to_toml(str(knob.role))}"
    yield f"seconds = {knob.cost.seconds!r}\nrestart = {to_toml(knob.cost.restart)}"
    if knob.condition is not None:
        yield f"if = {to_toml(str(knob.condition))}"
    name, path = to_toml(knob.name), to_toml(KNOBS)
    yield f'set = {{ path = {path}, json = {{ {name} = "{{value}}" }} }}'
    yield f"read = {{ path = {path}, json = {to_toml(f'setting.{knob.name}')} }}"


def _explaining(server: ServedModel) -> Iterator[str]:
    """Yield the tables of the waiting time and of the ratios that the server shows."""
    engine = server.engine
    if engine.queue in declared(server.text, "histogram"):
        yield f'\n[[histogram]]\nname = "queue"\nhistogram = {to_toml(engine.queue)}'
    counters = declared(server.text, "counter")
    for name, (counter, per) in engine.ratios.items():
        if counter in counters and per in counters:
            yield f"\n[[ratio]]\nname = {to_toml(name)}\ncounter = {to_toml(counter)}"
            yield f"per = {to_toml(per)}"


def _metrics(engine: LlmEngine) -> Iterator[str]:
    """Yield the head of the table that has the path of the metrics."""
    yield "\n[latency]"
    if engine.metrics != "/metrics":
        yield f"metrics = {to_toml(engine.metrics)}"


def _watched(server: ServedModel) -> Iterator[str]:
    """Yield the tables that measure the server's own traffic."""
    engine = server.engine
    if not engine.histograms:
        own = "" if engine.version else f"; or {shown_by(engine)}"
        raise InvalidInput(
            f"the traffic of {engine.title} at {server.url} cannot be measured: {engine.watch}",
            hint=f"{LOAD_HINT}{own}",
        )
    yield from _metrics(engine)
    yield f"histogram = {to_toml(available(server, 'latency'))}"
    yield f"unit = {to_toml(engine.unit)}"
    for metric in ("ttft", "tpot"):
        if name := available(server, metric):
            yield f"\n[[histogram]]\nname = {to_toml(metric)}\nhistogram = {to_toml(name)}"


def _sent(
    server: ServedModel, load: RequestedLoad, bodies: Path | None, good: Mapping[str, float]
) -> Iterator[str]:
    """Yield the table of our own load."""
    if not server.engine.completions or bodies is None:
        raise InvalidInput(
            f"no load can be generated for {server.engine.title}: its requests differ per model",
            hint="describe one in a file: docs/examples/triton.toml",
        )
    delay = server.engine.unload_delay
    if load.callers is not None and any(knob.name == delay for knob in server.knobs):
        raise InvalidInput(
            f"{delay} has no effect under a load of {load.callers} callers: it has no pauses",
            hint="give rate= or trace= with pauses, or start the proxy without this knob",
        )
    if server.text and server.engine.metrics != "/metrics":
        yield from _metrics(server.engine)
    yield f"\n[load]\npath = {to_toml(server.engine.completions)}\nstream = true"
    yield f"bodies = {to_toml(str(bodies))}\ntimeout_s = {ANSWER_S}"
    if load.callers is not None:
        yield f"callers = {load.callers}"
    else:
        yield f"callers = {OPEN_LOOP_CALLERS}"
        trace = load.trace and f"trace = {to_toml(str(load.trace))}"
        yield trace or f"rate_per_s = {load.rate_per_s!r}"
    if good:
        limits = ", ".join(f"{name} = {limit!r}" for name, limit in good.items())
        yield f"good = {{ {limits} }}           # counts into goodput_per_s"
    yield "\n[idle]                       # power between requests, where a device has a meter"
    if server.shows_unload:
        path, key = map(to_toml, server.engine.unloaded)
        yield f"unloaded = {{ path = {path}, json = {key} }}"
        if any(knob.name == delay for knob in server.knobs):
            yield f"delay = {to_toml(delay)}"
            yield f"\n[[json]]\nname = {to_toml(UNLOADED)}\npath = {path}\njson = {key}"
