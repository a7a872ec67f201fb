"""What an agent tells Prometheus of itself: on loopback or a socket, where its configuration asks for it.

What devices measure the tuner tells. Here is what only the agent knows, also while the tuner is away.
"""

from __future__ import annotations

import ipaddress
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from agents.tuner_link.spool import Spool
from tuner.core import ConfigError

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class DeviceState:
    """How one device of an agent stands.

    `opened` is false while it does not answer, `altered` says that it is not at its original, `study`
    whose hold is in force (empty: none's). `silence_s` is how long the tuner has not answered.
    """

    device: str
    opened: bool
    altered: bool = False
    study: str = ""
    silence_s: float | None = None


class Worked(Protocol):
    """A device that tells how it stands."""

    def state(self) -> DeviceState:
        """Return how it stands now."""
        ...


class AgentCollector(Collector):
    """Tells how the devices of an agent stand, and what waits for the tuner."""

    def __init__(self, devices: Sequence[Worked], spool: Spool, version: str) -> None:
        self._devices, self._spool, self._version = devices, spool, version

    def collect(self) -> Iterator[Metric]:
        """Yield everything."""
        states = [device.state() for device in self._devices]
        heard = [s for s in states if s.silence_s is not None]
        waiting = self._spool.waiting()
        yield _gauge(
            "jouletune_agent_build_info",
            "The version that runs.",
            [((self._version,), 1.0)],
            "version",
        )
        yield _gauge(
            "jouletune_agent_device_open", "1 where the device answers.",
            [((s.device,), float(s.opened)) for s in states], "device",
        )  # fmt: skip
        yield _gauge(
            "jouletune_agent_device_altered", "1 where the device is not at its original setting.",
            [((s.device,), float(s.altered)) for s in states if s.opened], "device",
        )  # fmt: skip
        yield _gauge(
            "jouletune_agent_hold", "1 for the study whose hold is in force.",
            [((s.device, s.study), 1.0) for s in states if s.study], "device", "study",
        )  # fmt: skip
        yield _gauge(
            "jouletune_agent_tuner_silence_seconds", "Since the tuner has last answered for a device.",
            [((s.device,), s.silence_s or 0.0) for s in heard], "device",
        )  # fmt: skip
        yield _gauge(
            "jouletune_agent_spool_reports", "Reports that wait for the tuner.",
            [((), float(len(waiting)))],
        )  # fmt: skip
        yield _gauge(
            "jouletune_agent_spool_bytes", "What they take on the disk.",
            [((), float(sum(map(_size, waiting))))],
        )  # fmt: skip


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def expose(address: str, collector: Collector) -> Callable[[], None]:
    """Serve `/metrics` at `HOST:PORT` on loopback or at `unix:PATH`; return what ends it.

    Raises:
        ConfigError: the address is none, is not on loopback, or is taken.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    handler = MetricsHandler.factory(registry)
    try:
        server: socketserver.BaseServer
        if address.startswith(UNIX):
            path = Path(address.removeprefix(UNIX))
            path.unlink(missing_ok=True)
            server = _UnixServer(str(path), handler)
            path.chmod(0o660)
        else:
            server = ThreadingHTTPServer(loopback(address), handler)
    except OSError as error:
        raise ConfigError(
            f"metrics cannot be served at {address}: {error.strerror}",
            hint="choose another port, or a path in a folder of the agent's",
        ) from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        if address.startswith(UNIX):
            Path(address.removeprefix(UNIX)).unlink(missing_ok=True)

    return end


def loopback(address: str) -> tuple[str, int]:
    """Return a host on loopback and a port. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    with suppress(ValueError):
        if port.isdecimal() and int(port) <= 65535 and ipaddress.ip_address(host).is_loopback:
            return host, int(port)
    raise ConfigError(
        f"metrics cannot be served at {address!r}: it has no TLS and no token",
        hint='write a port on loopback, "127.0.0.1:9464", or a socket, "unix:/run/agent.sock"',
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has arrived meanwhile, or waits in memory
        return 0


def _gauge(
    name: str, about: str, values: Sequence[tuple[tuple[str, ...], float]], *labels: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
