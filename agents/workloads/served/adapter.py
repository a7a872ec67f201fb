"""The adapter: a served workload as a space, an actuator, a meter and live signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, Field, TypeAdapter

from agents.host.http.knob_messages import KnobsReply
from agents.host.http.local_http import LocalHttp, local_url
from agents.host.processes.ownership import WorkloadIdentity
from agents.load.generator import ARRIVALS, REQUESTS, LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter
from agents.target.side import LiveSignal, Side, SignalSample, WorkloadChanged
from tuner.core import (
    ActuationError,
    Clock,
    CounterStep,
    InvalidInput,
    MeasurementError,
    Metric,
    Scope,
    Setting,
    Signal,
    Space,
    TuningError,
    demand,
    render_setting,
    reraised,
    setting_key,
)

CLOSED_LOOP = LoadShape(callers=4)

CHANGE_S = 180.0
"""Timeout in s of a change, which may start processes."""


def nothing() -> None:
    """Do nothing: whoever started the server restarts it and ends it."""


class StatsReader:
    """Read the server's figures once `revive` returns, and detect that another version has replaced it."""

    def __init__(self, server: Server, version: str, revive: Callable[[], None] = nothing) -> None:
        self._server = server
        self._version = version
        self._revive = revive
        self._incarnation = ""

    def read(self, inside: int | None = None, within_s: float = 0.0) -> StatsReply:
        """Return the figures, with `inside` once that many requests are in the server, or after `within_s`.

        Raises:
            DeviceLost: the server does not answer.
            WorkloadChanged: it was restarted as another version.
        """
        self._revive()
        stats = self._server.stats(inside, within_s)
        if stats.incarnation != self._incarnation:
            version = self._server.knobs().version
            if version != self._version:
                raise WorkloadChanged(
                    f"the workload at {self._server.url} changed from {self._version} to {version}",
                    hint="restart the agent",
                )
            self._incarnation = stats.incarnation
        return stats


class StatsSignal:
    """A signal among the server's figures."""

    def __init__(
        self, signal: Signal, reader: StatsReader, sample: Callable[[StatsReply], SignalSample]
    ) -> None:
        self.signal = signal
        self._reader = reader
        self._sample = sample

    def read(self) -> SignalSample:
        """Return the current value. Raises DeviceLost, WorkloadChanged."""
        return self._sample(self._reader.read())


class AwaitedRequests(StatsSignal):
    """The requests in a server that can wait for a given number of them."""

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        """Return their number once it is at least `value`, or after `seconds`. Raises as `read`."""
        return self._sample(self._reader.read(round(value), seconds))


def signals_of(reader: StatsReader, stats: StatsReply) -> tuple[LiveSignal, ...]:
    """Return the signals that a server reports, by its first answer."""
    if not stats.incarnation:
        return ()
    signals: list[LiveSignal] = []
    if stats.inside is not None:
        signals.append(AwaitedRequests(REQUESTS, reader, _requests))
    elif stats.in_flight_s is not None:
        signals.append(StatsSignal(REQUESTS, reader, _requests))
    if stats.arrived is not None:
        signals.append(StatsSignal(ARRIVALS, reader, _arrivals))
    return tuple(signals)


def _requests(stats: StatsReply) -> SignalSample:
    """Return the sample of the requests in the server."""
    present = None if stats.inside is None else float(stats.inside)
    return SignalSample(present, stats.in_flight_s, stats.incarnation)


def _arrivals(stats: StatsReply) -> SignalSample:
    """Return the sample of the arrivals."""
    return SignalSample(None, float(stats.arrived or 0), stats.incarnation)


class StatsReply(BaseModel):
    """The answer of `GET /stats`; fields with a default are optional."""

    cpu_s: float = Field(ge=0.0, allow_inf_nan=False)
    items: int = Field(ge=0)
    failed: int = Field(ge=0)
    pids: tuple[int, ...]
    incarnation: str = ""
    batches: int | None = Field(default=None, ge=0)
    arrived: int | None = Field(default=None, ge=0)
    in_flight_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    inside: int | None = Field(default=None, ge=0)


ReplyT = TypeVar("ReplyT", bound=BaseModel)


class Server:
    """A running server that speaks the contract.

    Every method raises DeviceLost if it does not answer, and ActuationError if the answer is a
    refusal or not in the contract.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        hint = "restart it, or check its log"
        self._http = LocalHttp(url, "the workload", hint)
        self.close = self._http.close

    def knobs(self) -> KnobsReply:
        """Return the knobs and the current setting."""
        return self._parsed(KnobsReply, self._http.call("GET", "/knobs"))

    def stats(self, inside: int | None = None, within_s: float = 0.0) -> StatsReply:
        """Return the counters; if supported, once `inside` requests are in the server."""
        query = "" if inside is None else f"?inside={inside}&within_s={within_s:g}"
        return self._parsed(StatsReply, self._http.call("GET", f"/stats{query}"))

    def put(self, setting: Setting) -> None:
        """Request a setting and wait until it is in force."""
        self._http.call("PUT", "/knobs", dict(setting), CHANGE_S)

    def _parsed(self, model: type[ReplyT], response: httpx2.Response) -> ReplyT:
        """Return a typed response. Raises ActuationError."""
        hint = "the contract is at the top of agents/workloads/served/__init__.py"
        return self._http.parsed(TypeAdapter(model), response, "in the workload contract", hint)


class KnobActuator:
    """Sets the knobs of a served workload; with `started`, which identifies its start, restarts show.

    `revive` is called before the knobs are read or set, `end` after the connection is closed.
    """

    def __init__(
        self,
        server: Server,
        space: Space,
        started: Callable[[], str] | None,
        revive: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._server = server
        self._space = space
        self._revive, self._end = revive, end
        if started is not None:
            self.incarnation = started

    def close(self) -> None:
        """End the connection."""
        self._server.close()
        self._end()

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError, DeviceLost."""
        self._revive()
        return self._in_force()

    def _in_force(self) -> Setting:
        """Return the setting that the server reports. Raises ActuationError, DeviceLost."""
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
        now = self._in_force()
        if setting_key(now) != setting_key(requested):
            raise ActuationError(
                f"the workload at {self._server.url} accepted {render_setting(requested)} but uses "
                f"{render_setting(now)}"
            )


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
    spec: str,
    *,
    seed: int,
    state_dir: Path,
    clock: Clock,
    shape: LoadShape = CLOSED_LOOP,
    revive: Callable[[], None] = nothing,
    end: Callable[[], None] = nothing,
) -> Side:
    """Attach to the running server at a URL on loopback.

    `revive` restarts a server of ours that has ended, before its knobs or signals are used; closing the
    side ends it by `end`.

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

    reader = StatsReader(server, reply.version, revive)
    started = (lambda: reader.read().incarnation) if stats.incarnation else None
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
        actuator=KnobActuator(server, space, started, revive, end),
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
