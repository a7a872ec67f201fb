"""`jouletune run --llm`: tune a running server of a language model without a handwritten file."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agents.devices.catalogue import open_device, specs_in
from agents.host.machine import HostClock
from agents.host.processes.process_table import ProcessTable, service_of
from agents.target.side import Side
from agents.workloads import open_workload
from agents.workloads.http.llm.detection import ServedModel, demand_answer, find_server
from agents.workloads.http.llm.engines import LlmEngine
from agents.workloads.http.llm.requests import RequestedLoad
from agents.workloads.http.llm.service_file import LOAD_HINT, LlmProcess, service_text, shown_by
from tuner import files
from tuner.cli.answers import Finding
from tuner.core import Clock, Constraint, Knob, TuningError, by_reason

TRAFFIC_S = 10.0
"""The longest wait for a request of the server's own traffic."""
STEP_S = 0.5
GOOD = {f"{name}_p{share}_ms": f"{name}_ms" for name in ("ttft", "tpot") for share in (95, 99)}
"""Constraints whose limits also define the requests that count as goodput."""
UNIT = ".service"
COMMAND = "`jouletune run --llm --knob NAME=V,V -- COMMAND`"
DOCTOR = "`jouletune doctor` gives the reason and the next step"


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """The request of the flags."""

    url: str
    device: str
    generate_load: str = ""
    constraints: Sequence[str] = ()
    seed: int = 0
    allow_restart: bool = False

    @property
    def load(self) -> RequestedLoad | None:
        """The load to generate, or None to measure the server's own traffic. Raises InvalidInput."""
        return RequestedLoad.parse(self.generate_load) if self.generate_load else None


@dataclass(frozen=True, slots=True)
class LlmFiles:
    """The file of the service, with the bodies of its load beside it."""

    server: ServedModel
    file: Path

    @property
    def workload(self) -> str:
        """The workload's spec."""
        return f"service:{self.file}"


def write_files(request: LlmRequest, folder: Path, name: str = "") -> LlmFiles:
    """Detect the server and write its service file; without a name the file is named by its digest.

    If a load is to be generated, the server must first answer one of its requests, with one token.

    Raises:
        InvalidInput: no server is recognised, or it cannot be measured with these flags.
        ActuationError: it does not answer that request, or does not count the tokens.
        DeviceLost: no server answers at the URL.
    """
    server, load = find_server(request.url), request.load
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = folder.resolve()
    bodies: Path | None = None
    if load is not None and server.engine.completions:
        server = server.serving(load.model)
        text = load.bodies(server.model, server.engine.request, request.seed)
        demand_answer(server, text.partition("\n")[0])
        if server.fresh:  # after a request it exposes its metrics
            server = find_server(request.url).serving(load.model)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        bodies = folder / (f"{Path(name).stem}.jsonl" if name else f"llm-{digest}.jsonl")
        files.write(bodies, text, 0o600)
    process = _process(server.url)
    text = service_text(server, process, load, bodies, good_limits(request.constraints))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = folder / (name or f"llm-{digest}.toml")
    files.write(file, text, 0o644 if name else 0o600)
    return LlmFiles(server, file)


def good_limits(constraints: Sequence[str]) -> dict[str, float]:
    """Return the absolute limits on TTFT and TPOT. Raises ConstraintSyntax."""
    parsed = [Constraint.parse(text) for text in constraints]
    return {
        GOOD[one.metric]: one.bound
        for one in parsed
        if one.metric in GOOD and one.op == "<=" and not one.relative
    }


def demand_traffic(workload: str, clock: Clock) -> None:
    """Return once the server has answered a request of its own traffic.

    Raises:
        TuningError: no request is answered within ten seconds.
    """
    with tempfile.TemporaryDirectory(prefix="jouletune-") as folder:
        side = open_workload(workload, seed=0, state_dir=Path(folder), clock=clock)
        with closing(side):
            window, began_s = side.meter.start(), clock.monotonic()
            while not window.read().totals.get("items", 0.0):
                if clock.monotonic() - began_s > TRAFFIC_S:
                    window.stop()
                    raise TuningError(
                        f"no request was answered within {TRAFFIC_S:g} s: the server's own traffic is "
                        "what would be measured",
                        hint=f"start again while it has traffic, or {LOAD_HINT}",
                    )
                clock.sleep(STEP_S)
            window.stop()


def examine(request: LlmRequest) -> Iterator[Finding]:
    """Yield the recognised server, its metrics and knobs, and missing parts; set nothing."""
    clock = HostClock()
    with tempfile.TemporaryDirectory(prefix="jouletune-") as name, ExitStack() as stack:
        written = write_files(request, Path(name))
        server = written.server
        yield from _recognised(server)
        service = open_workload(written.workload, seed=0, state_dir=Path(name), clock=clock)
        stack.callback(service.close)
        yield Finding("measured by", True, service.source)
        if not request.generate_load:
            ends = f"a run ends if no request is answered within {TRAFFIC_S:g} s"
            yield Finding("load", True, f"the server's own traffic; {ends}")
        yield Finding("metrics", True, ", ".join(metric.name for metric in service.metrics))
        for metric, why in service.cannot.items():
            yield Finding(metric, False, why, "write the service's file: docs/workloads.md")
        sides = [service]
        for spec in specs_in(request.device):
            side = open_device(spec, seed=0, state_dir=Path(name))
            stack.callback(side.close)
            sides.append(side)
        yield from _settable(sides, server.engine, allow_restart=request.allow_restart)


def _recognised(server: ServedModel) -> Iterator[Finding]:
    """Yield checks of the server: engine, model, metrics."""
    engine = server.engine
    version = engine.title if server.version == "unknown" else f"{engine.title} {server.version}"
    several = len(server.models) > 1
    models = f"model{'s' if several else ''} {server.model}" if server.models else "models unknown"
    together = "; all are measured together" if several else ""
    yield Finding("server", True, f"{version} at {server.url}, {models}{together}")
    if server.closed:
        yield Finding("model", False, server.closed, "none is needed while no load is generated")
    if server.silent:
        seen = f"{server.silent}; tokens are counted in the answers"
        yield Finding("server's metrics", False, seen, shown_by(engine))


def _settable(
    sides: Sequence[Side], engine: LlmEngine, *, allow_restart: bool
) -> Iterator[Finding]:
    """Yield checks of the energy meter and of each knob."""
    knobs = [knob for side in sides for knob in side.space.knobs]
    for side in sides[1:]:
        energy = any(metric.name in ("energy_j", "power_w") for metric in side.metrics)
        seen = "energy is measured" if energy else "no energy meter, so the objective is CPU time"
        yield Finding(side.name, energy, seen, "" if energy else DOCTOR)
        for names, why in by_reason(side.cannot):
            yield Finding(f"{side.name}: {names}", False, why, DOCTOR)
    for knob in knobs:
        may = allow_restart or not knob.cost.restart
        hint = "" if may else "a change of it restarts the server: add --allow-restart"
        yield Finding(f"would set {knob.name}", may, _range(knob), hint)
    if not knobs:
        hint = f"grant the device's knobs in actuator.toml; for flags of {engine.title}: {COMMAND}"
        yield Finding("would set", False, "nothing, so a run would tune nothing", hint)


def _range(knob: Knob) -> str:
    """Return a knob's values and its current value as text."""
    values = list(knob.values)
    seen = f"{values[0]} to {values[-1]}" if len(values) > 3 else ", ".join(map(str, values))
    return f"{seen} ({len(values)} values), now {knob.default}"


def _process(url: str) -> LlmProcess:
    """Return the process that listens at a URL's port, by its unit, else by that port."""
    table, port = ProcessTable(), urlsplit(url).port or 0
    owners = sorted(table.owners(port))
    if not owners:
        return LlmProcess()
    service = service_of(table.service(owners[0]))
    unit = Path(service).name
    if unit.endswith(UNIT) and not unit.startswith("user@"):
        return LlmProcess(unit=unit)
    return LlmProcess(port=port)


def usual_device() -> str:
    """Return the GPU if this machine has one, else its CPU."""
    return "nvidia:0" if Path("/dev/nvidia0").exists() else "cpu"
