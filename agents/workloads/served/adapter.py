"""The adapter: a served workload as a space, an actuator and a meter."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

from agents.attached import Attached, Pulse, WorkloadChanged
from agents.load import HttpCaller, LoadRun, LoadShape, Tally
from agents.workloads.served.contract import Server, StatsReply
from tuner.core import (
    ActuationError,
    Clock,
    Estimate,
    InvalidInput,
    MeasurementError,
    Metric,
    Scope,
    Setting,
    Space,
    TuningError,
    Window,
    quantile_estimate,
    render_setting,
    setting_key,
)

BATCHES = 20
"""Parts that a window is cut into for the standard errors of its means."""
LEAST_PER_BATCH = 2
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
        self._final: Mapping[str, Estimate] | None = None

    def read(self) -> Mapping[str, Estimate]:
        """Return what the window shows so far. Raises MeasurementError."""
        if self._final is not None:
            return self._final
        return self._shown(self._run.read())

    def stop(self) -> Mapping[str, Estimate]:
        """End the load and return what it showed. Raises MeasurementError."""
        if self._final is None:
            self._final = self._shown(self._run.stop())
        return self._final

    def _shown(self, tally: Tally) -> Mapping[str, Estimate]:
        now = self._stats()
        cpu_s, items = now.cpu_s - self._before.cpu_s, now.items - self._before.items
        if cpu_s < 0.0 or items < 0:
            raise MeasurementError(
                "the workload's totals went backwards", hint="it was restarted; measure again"
            )
        totals = {
            "window_items": Estimate(float(items), scope=Scope.SERVICE),
            "window_failed": Estimate(float(tally.failed), scope=Scope.SERVICE),
            "window_cpu_s": Estimate(cpu_s, scope=Scope.PROCESS),
        }
        return _metrics(tally, _together(self._before, now)) | totals


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
        stats = self._server.stats()
        if stats.incarnation != self._incarnation:
            version = self._server.knobs().version
            if version != self._version:
                raise WorkloadChanged(
                    f"the workload at {self._server.url} changed from {self._version} to {version}",
                    hint="start the agent anew",
                )
            self._incarnation = stats.incarnation
        return Pulse(stats.incarnation, stats.arrived or 0, stats.in_flight_s or 0.0)


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

    pulse = Heart(server, reply.version).pulse
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
        pulse=pulse if stats.incarnation else None,
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


def _metrics(tally: Tally, together: float) -> dict[str, Estimate]:
    """Return latencies and rates; what too few requests show is absent.

    The `together` items of a batch share its time, so they are one observation of a tail.

    Means and rates have the standard error of batch means (Law, Simulation Modeling and Analysis,
    §9.5.3), because the latencies of neighbours in a queue depend on each other.
    """
    latencies_ms = [1000.0 * s for s in tally.latencies_s]
    if not latencies_ms:
        return {}
    shown = {
        "latency_p50_ms": quantile_estimate(latencies_ms, 0.50, together=together),
        "latency_p99_ms": quantile_estimate(latencies_ms, 0.99, together=together),
    }
    if len(latencies_ms) >= LEAST_PER_BATCH * BATCHES:
        size = len(latencies_ms) / BATCHES
        cuts = [round(k * size) for k in range(BATCHES + 1)]
        means = [statistics.fmean(latencies_ms[cuts[k] : cuts[k + 1]]) for k in range(BATCHES)]
        shown["latency_mean_ms"] = _of_batches(means, len(latencies_ms))
        shown["throughput_per_s"] = _rate(tally.completed_at_s, tally.seconds)
        shown["arrival_rate_per_s"] = _rate(tally.arrived_at_s, tally.seconds)
    return shown


def _rate(moments_s: Sequence[float], seconds: float) -> Estimate:
    """Return how many happened per second; what happened after the end does not count."""
    width = seconds / BATCHES
    counts = Counter(int(m / width) for m in moments_s if m < seconds)
    rates = [counts[k] / width for k in range(BATCHES)]
    return _of_batches(rates, sum(counts.values()))


def _of_batches(values: Sequence[float], n: int) -> Estimate:
    """Return the mean of equal batches over `n` observations."""
    stderr = statistics.stdev(values) / math.sqrt(len(values))
    return Estimate.of_mean(statistics.fmean(values), stderr, n, scope=Scope.SERVICE)
