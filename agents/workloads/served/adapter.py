"""The adapter: a served workload as a space, an actuator and a meter."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

from agents.attached import Attached, Pulse, WorkloadChanged
from agents.load import HttpCaller, LoadRun, LoadShape, Tally
from agents.tally import shown_by
from agents.workloads.served.contract import Server, StatsReply
from tuner.core import (
    ActuationError,
    Clock,
    InvalidInput,
    MeasurementError,
    Metric,
    Reading,
    Scope,
    Setting,
    Space,
    TuningError,
    Window,
    render_setting,
    setting_key,
)

CLOSED_LOOP = LoadShape(callers=4)


class KnobActuator:
    """Sets the knobs of a served workload."""

    def __init__(self, server: Server, space: Space) -> None:
        self._server = server
        self._space = space

    def read(self) -> Setting:
        """Return what is in force. Raises ActuationError, DeviceLost."""
        setting = self._server.knobs().setting
        try:
            self._space.check(setting)
        except InvalidInput as error:
            raise ActuationError(
                f"the workload at {self._server.url} is at {render_setting(setting)}: {error}",
                hint="its knobs have changed; start the agent anew",
            ) from None
        return setting

    def apply(self, setting: Setting) -> None:
        """Put a setting in force.

        Raises:
            UnknownKnob, OutOfRange: it does not fit; nothing was changed.
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        before = self.read()
        wanted = {**before, **setting}
        self._space.check(wanted)
        if setting_key(wanted) == setting_key(before):
            return
        self._server.put(wanted)
        now = self.read()
        if setting_key(now) != setting_key(wanted):
            raise ActuationError(
                f"the workload at {self._server.url} took {render_setting(wanted)} but is at "
                f"{render_setting(now)}"
            )


class LoadMeter:
    """Measures a served workload under our load; every window sends the same seeded arrivals."""

    def __init__(self, server: Server, shape: LoadShape, clock: Clock, seed: int) -> None:
        self._server = server
        self._shape = shape
        self._clock = clock
        self._seed = seed
        self._runs: WeakSet[LoadRun] = WeakSet()

    def start(self) -> Window:
        """Start the load. Raises MeasurementError where the server does not answer."""
        before = self.stats()
        url = urlsplit(self._server.url)
        host, port = url.hostname or "", url.port or 80
        run = LoadRun(
            lambda: HttpCaller(host, port, "/infer"),
            self._shape,
            clock=self._clock,
            seed=self._seed,
        )
        self._runs.add(run)
        return LoadWindow(run, before, self.stats)

    def stats(self) -> StatsReply:
        """Return the server's totals. Raises MeasurementError where it does not tell them."""
        try:
            return self._server.stats()
        except ActuationError as error:
            raise MeasurementError(error.message, hint=error.hint) from error

    def close(self) -> None:
        """End the load of every window that is still open."""
        for run in list(self._runs):
            run.stop(grace_s=0.0)


class LoadWindow:
    """An open window: the load is on until it is stopped.

    Items and CPU time are the server's own totals, so that their ratio is right even where somebody
    else sends requests too; latencies and failures are what our callers saw.
    """

    def __init__(self, run: LoadRun, before: StatsReply, stats: Callable[[], StatsReply]) -> None:
        self._run = run
        self._before = before
        self._stats = stats
        self._final: Reading | None = None

    def read(self) -> Reading:
        """Return what the window shows so far. Raises MeasurementError."""
        if self._final is not None:
            return self._final
        return self._shown(self._run.read())

    def stop(self) -> Reading:
        """End the load and return what it showed. Raises MeasurementError."""
        if self._final is None:
            self._final = self._shown(self._run.stop())
        return self._final

    def _shown(self, tally: Tally) -> Reading:
        now = self._stats()
        cpu_s, items = now.cpu_s - self._before.cpu_s, now.items - self._before.items
        if cpu_s < 0.0 or items < 0:
            raise MeasurementError(
                "the workload's totals went backwards", hint="it was restarted; measure again"
            )
        totals = {"items": float(items), "failed": float(tally.failed), "cpu_s": cpu_s}
        return Reading(totals, shown_by(tally, _together(self._before, now)))


class Heart:
    """Tells the server's pulse, and notices when another version has taken its place."""

    def __init__(self, server: Server, version: str) -> None:
        self._server = server
        self._version = version
        self._incarnation = ""

    def pulse(self) -> Pulse:
        """Return the pulse; a load that the server does not tell stands still.

        Raises:
            DeviceLost: the server does not answer.
            WorkloadChanged: it was started again as another version.
        """
        return self._told(self._server.stats())

    def crowded(self, inside: int, within_s: float) -> Pulse:
        """Return the pulse once so many requests are in the server, or after so long; raises alike."""
        return self._told(self._server.stats(inside, within_s))

    def _told(self, stats: StatsReply) -> Pulse:
        if stats.incarnation != self._incarnation:
            version = self._server.knobs().version
            if version != self._version:
                raise WorkloadChanged(
                    f"the workload at {self._server.url} changed from {self._version} to {version}",
                    hint="start the agent anew",
                )
            self._incarnation = stats.incarnation
        return Pulse(stats.incarnation, stats.arrived or 0, stats.in_flight_s or 0.0, stats.inside)


def attach(
    spec: str, *, seed: int, state_dir: Path, clock: Clock, shape: LoadShape = CLOSED_LOOP
) -> Attached:
    """Attach to the running server at a URL on loopback.

    Raises:
        InvalidInput: not a URL with a port on loopback, or knobs that make no space.
        DeviceLost, ActuationError: nobody answers there, or not in the contract.
    """
    server = Server(_checked(spec))
    try:
        reply = server.knobs()
        space = reply.space()
        stats = server.stats()
    except TuningError:
        server.close()
        raise
    meter = LoadMeter(server, shape, clock, seed)

    def close() -> None:
        meter.close()
        server.close()

    heart = Heart(server, reply.version)
    latencies = ("latency_p50_ms", "latency_p99_ms", "latency_mean_ms", "throughput_per_s")
    arriving = () if shape.rate_per_s is None else ("arrival_rate_per_s",)
    return Attached(
        name=reply.name,
        kind="served",
        board=server.url,
        version=reply.version,
        space=space,
        metrics=(
            *(Metric(name, scope=Scope.SERVICE) for name in (*latencies, *arriving)),
            Metric("cpu_time_ms", scope=Scope.PROCESS),
        ),
        actuator=KnobActuator(server, space),
        meter=meter,
        source=f"our load generator, {shape}",
        pulse=heart.pulse if stats.incarnation else None,
        crowded=heart.crowded if stats.incarnation and stats.inside is not None else None,
        close=close,
    )


def _checked(url: str) -> str:
    """Return the URL without a trailing slash. Raises InvalidInput unless it is host and port."""
    hint = "write http://127.0.0.1:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        local = host == "localhost" or ip_address(host).is_loopback
    except ValueError as error:
        raise InvalidInput(f"{url!r} is not a workload's address: {error}", hint=hint) from None
    if not local:
        raise InvalidInput(f"{url!r} is not on this machine", hint=hint)
    if parts.scheme != "http" or not port or parts.path not in ("", "/") or parts.query:
        raise InvalidInput(f"{url!r} is not a plain http address with a port", hint=hint)
    return url.rstrip("/")


def _together(before: StatsReply, now: StatsReply) -> float:
    """Return how many items a batch had on average; 1 where the server does not tell its batches."""
    if before.batches is None or now.batches is None or now.batches <= before.batches:
        return 1.0
    return max(1.0, (now.items - before.items) / (now.batches - before.batches))
