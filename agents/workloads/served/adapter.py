"""The adapter: a served workload as a space, an actuator and a meter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from agents.host.http.local_http import local_url
from agents.host.processes.ownership import WorkloadIdentity
from agents.load.generator import LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter
from agents.target.side import Side
from agents.workloads.served.contract import Server, StatsReply
from agents.workloads.served.signals import StatsReader, signals_of
from tuner.core import (
    ActuationError,
    Clock,
    CounterStep,
    InvalidInput,
    MeasurementError,
    Metric,
    Scope,
    Setting,
    Space,
    TuningError,
    demand,
    render_setting,
    reraised,
    setting_key,
)

CLOSED_LOOP = LoadShape(callers=4)


class KnobActuator:
    """Sets the knobs of a served workload."""

    def __init__(self, server: Server, space: Space) -> None:
        self._server = server
        self._space = space

    def close(self) -> None:
        """End the connection."""
        self._server.close()

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError, DeviceLost."""
        setting = self._server.knobs().setting
        try:
            self._space.check(setting)
        except InvalidInput as error:
            raise ActuationError(
                f"the workload at {self._server.url} is at {render_setting(setting)}: {error}",
                hint="its knobs have changed; restart the agent",
            ) from None
        return setting

    def apply(self, setting: Setting) -> None:
        """Put a setting in force.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space; nothing was changed.
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        before = self.read()
        requested = {**before, **setting}
        self._space.check(requested)
        if setting_key(requested) == setting_key(before):
            return
        self._server.put(requested)
        now = self.read()
        if setting_key(now) != setting_key(requested):
            raise ActuationError(
                f"the workload at {self._server.url} accepted {render_setting(requested)} but uses "
                f"{render_setting(now)}"
            )


class RestartableKnobs(KnobActuator):
    """Set the knobs of a served workload that reports restarts."""

    def __init__(self, server: Server, space: Space, reader: StatsReader) -> None:
        super().__init__(server, space)
        self._reader = reader

    def incarnation(self) -> str:
        """Return an identifier that differs after each start.

        Raises DeviceLost, WorkloadChanged.
        """
        return self._reader.read().incarnation


class ServerTotals:
    """The server's totals since construction. Raises MeasurementError."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._stats()

    def __call__(self) -> Mapping[str, float]:
        """Return the totals so far. Raises MeasurementError."""
        before, now = self._before, self._stats()
        totals = {"items": float(now.items - before.items), "cpu_s": now.cpu_s - before.cpu_s}
        steps = (("items", before.items, now.items), ("cpu_s", before.cpu_s, now.cpu_s))
        demand(*(CounterStep(f"the workload's total {n}", was, at) for n, was, at in steps))
        if now.batches is not None and before.batches is not None:
            totals["batches"] = float(now.batches - before.batches)
        return totals

    def _stats(self) -> StatsReply:
        """Return the server's figures. Raises MeasurementError."""
        with reraised(MeasurementError, ActuationError):
            return self._server.stats()


def attach(
    spec: str, *, seed: int, state_dir: Path, clock: Clock, shape: LoadShape = CLOSED_LOOP
) -> Side:
    """Attach to the running server at a URL on loopback.

    Raises:
        InvalidInput: not a URL with a port on loopback, or knobs that make no space.
        DeviceLost, ActuationError: no response, or not in the contract.
    """
    server = Server(_checked(spec))
    try:
        reply = server.knobs()
        space = reply.space()
        stats = server.stats()
    except TuningError:
        server.close()
        raise
    url = urlsplit(server.url)
    connect = partial(HttpCaller, url.hostname or "", url.port or 80, "/infer")
    counting = partial(ServerTotals, server)
    meter = LoadMeter(connect, shape, counting, clock, seed, f"requests of {server.url}/stats")

    reader = StatsReader(server, reply.version)
    knobs = (
        RestartableKnobs(server, space, reader)
        if stats.incarnation
        else KnobActuator(server, space)
    )
    latencies = ("latency_p50_ms", "latency_p99_ms", "latency_mean_ms", "throughput_per_s")
    arriving = () if shape.rate_per_s is None else ("arrival_rate_per_s",)
    return Side(
        name=reply.name,
        kind="served",
        board=server.url,
        version=reply.version,
        space=space,
        metrics=(
            *(Metric(name, scope=Scope.SERVICE) for name in (*latencies, *arriving)),
            Metric("cpu_time_ms", scope=Scope.PROCESS),
        ),
        actuator=knobs,
        meter=meter,
        source=f"our load generator, {shape}",
        signals=signals_of(reader, stats),
        identity=WorkloadIdentity(processes=lambda: server.stats().pids, port=url.port or 0),
    )


def _checked(url: str) -> str:
    """Return the URL without a trailing slash. Raises InvalidInput unless it is host and port."""
    hint = "write http://127.0.0.1:PORT"
    if local_url(url, hint).path not in ("", "/"):
        raise InvalidInput(f"{url!r} is not just a host and a port", hint=hint)
    return url.rstrip("/")
