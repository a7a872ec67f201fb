"""Live data of a served workload: its load, and restarts."""

from __future__ import annotations

from collections.abc import Callable

from agents.load.generator import ARRIVALS, REQUESTS
from agents.target.side import LiveSignal, SignalSample, WorkloadChanged
from agents.workloads.served.contract import Server, StatsReply
from tuner.core import Signal


class StatsReader:
    """Read the server's figures, and detect that another version has replaced it."""

    def __init__(self, server: Server, version: str) -> None:
        self._server = server
        self._version = version
        self._incarnation = ""

    def read(self, inside: int | None = None, within_s: float = 0.0) -> StatsReply:
        """Return the figures, with `inside` once that many requests are in the server, or after `within_s`.

        Raises:
            DeviceLost: the server does not answer.
            WorkloadChanged: it was restarted as another version.
        """
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
