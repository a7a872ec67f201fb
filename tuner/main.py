"""Composition root of the tuner process: the only module that names concrete classes."""

from __future__ import annotations

import functools
import logging
import os
import random
import resource
import secrets
import shlex
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import db
from tuner import files, process_memory
from tuner.config import TunerConfig
from tuner.core import ConfigError, StoreError, within_hours
from tuner.process_memory import leave_alone_too, uncollected

if TYPE_CHECKING:
    from tuner.core import Policy
    from tuner.service.notices.courier import Courier
    from tuner.service.operations import Operations
    from tuner.study.changes import Telemetry
    from tuner.study.loop import Loop
    from tuner.suggesting.cluster import RayCluster

log = logging.getLogger(__name__)

GRACE_S = 2
SEND_BYTES = 128 * 1024
MOST_LOCAL = 4
"""The greatest default number of processes for suggestions: each takes about 350 MB."""
MOST_IN_CLUSTER = 64
LEAST_TOKEN = 22
"""The least length of a token: 22 characters of base64 hold 128 random bits."""
ALIVE_S = 5
"""The interval, in seconds, of the tuner's watchdog messages to systemd."""


def utc_now() -> datetime:
    """Return the wall time in UTC."""
    return datetime.now(timezone.utc)


def build_operations(
    store: db.Store, config: TunerConfig, telemetry: Telemetry | None = None
) -> Operations:
    """Return the operator's verbs over a store, for the tuner and for commands with `--db`."""
    from policies import load_policy
    from tuner.service.energy_price import SERIES, EnergyPrice
    from tuner.service.operations import Operations
    from tuner.study.changes import Telemetry
    from tuner.study.loop import Loop

    def loaded(name: str) -> Policy:
        policy = load_policy(name)
        leave_alone_too()
        return policy

    loop = Loop(
        store=store,
        policies=functools.cache(loaded),
        now=utc_now,
        lease_s=config.lease_s,
        abandon_s=config.abandon_s,
        hours=functools.partial(within_hours, config.tuning_hours),
        telemetry=telemetry or Telemetry(),
    )
    return Operations(loop, EnergyPrice.of(config, loop.changes.rows(SERIES)))


@contextmanager
def local_operations(db: str) -> Iterator[Operations]:
    """Open a database without a tuner, while the context lasts.

    Raises:
        ConfigError, StoreError: the URL is wrong, or the database does not answer.
    """
    from db import open_store

    store = open_store(db, create=False)
    try:
        yield build_operations(store, TunerConfig(db=db))
    finally:
        store.close()


def serve(config: TunerConfig) -> None:
    """Run the tuner until a signal ends it (SIGTERM, SIGINT).

    Raises:
        ConfigError: the port is taken, the token file or a certificate cannot be used, or tokens would be
            sent in clear text.
        StoreError: the database does not answer.
    """
    limit_threads()
    process_memory.share()
    import uvicorn

    from db import open_store, shown
    from tuner.exports.otel import EVERY_S, OtelExport
    from tuner.service.clock.liveness import Roll, Watchdog
    from tuner.service.clock.schedule import Maintenance, Periodic, start
    from tuner.service.fleet import FleetOverview
    from tuner.service.http.api import create_app
    from tuner.service.http.http_limits import BACKLOG, HttpLimits, LogLimit, limited_http
    from tuner.service.metrics.counts import Counts
    from tuner.service.metrics.fleet_metrics import Metrics
    from tuner.service.summaries import Summaries
    from tuner.web.app import create_pages
    from tuner.wire import MOST_ORDER_BYTES

    config.check_reach()
    export = OtelExport(config.otel, version("jouletune")) if config.otel else None
    listener = bind(config)
    counts = Counts()
    store = open_store(config.db, timed=counts.transaction)
    store.bus.listen(lead=True)
    token = ensure_token(config.token_file)
    operations = build_operations(store, config, counts)
    enders = [have_decided(operations.loop, config, counts)]
    fleet = FleetOverview(operations, Summaries(operations))
    metrics = Metrics(fleet, counts, version("jouletune"), labels=config.metric_labels)
    if export is not None:

        def send_windows() -> None:
            kinds = {device.id: device.kind for device in store.devices.list()}
            export.send(metrics.families(), kinds)

        sending = Periodic([(send_windows, EVERY_S)])
        enders.append(functools.partial(sending.shutdown, wait=False))
    secure = config.tls.spoken or config.behind_proxy
    limits = HttpLimits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MOST_ORDER_BYTES)
    app = create_app(
        operations,
        token,
        names(config),
        version("jouletune"),
        lambda: server.should_exit,
        client_certs=config.client_ca is not None,
        pages=lambda sessions: create_pages(fleet, sessions, version("jouletune"), secure=secure),
        fleet=fleet,
        metrics=metrics,
        counts=counts,
        most_running=limits.running,
    )
    enders += [courier.begin() for courier in couriers(store, config)]
    enders.append(fleet.summaries.begin())
    roll = Roll(operations.loop, name_of(config), version("jouletune"), token)
    roll.tell()
    scheduler = start(
        Maintenance(operations.loop, config.keep_days),
        roll.tell,
        operations.price.refresh,
        operations.divider.divide,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=limited_http(limits, counts.dropped),
            ws="none",
            proxy_headers=config.behind_proxy,
            backlog=BACKLOG,
            limit_concurrency=limits.running,
            log_level="warning",
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=config.tls_cert,
            ssl_keyfile=config.tls_key,
            ssl_ca_certs=None if config.client_ca is None else str(config.client_ca),
            ssl_cert_reqs=ssl.CERT_NONE if config.client_ca is None else ssl.CERT_OPTIONAL,
            # uvicorn calls it from its event loop, the first time when it listens.
            callback_notify=Watchdog(store.ping).tell,
            timeout_notify=ALIVE_S,
        )
    )
    for chatty in ("asyncio", "uvicorn.error"):
        logging.getLogger(chatty).addFilter(LogLimit())
    port = listener.getsockname()[1]
    try:
        with uncollected():
            if config.port_file is not None:
                files.write(config.port_file, f"{port}\n", 0o644)
            log.info("event=store trials are kept in %s", shown(config.db))
            log.info("event=token the admin's token is in %s", config.token_file)
            _tell_reach(config, port)
            # uvicorn handles both signals, and raises them again at its end. They are ignored then, so
            # that the store is closed.
            for ending in (signal.SIGTERM, signal.SIGINT):
                signal.signal(ending, signal.SIG_IGN)
            server.run(sockets=[listener])
    finally:
        for end in enders:
            end()
        scheduler.shutdown(wait=False)
        store.close()


def have_decided(loop: Loop, config: TunerConfig, telemetry: Telemetry) -> Callable[[], None]:
    """Start the workers for suggestions at the configured place; return the function that ends them.

    Raises:
        ConfigError: the Ray cluster cannot be reached, or Ray is not installed.
    """
    from tuner.suggesting.suggestions import Suggestions
    from tuner.suggesting.workers import LocalWorker, SuggestionWorker

    if config.suggest == "here":
        return lambda: None
    ended: Callable[[], None] = lambda: None  # noqa: E731
    workers: list[SuggestionWorker]
    if config.suggest.startswith("ray://"):
        cluster = ray_cluster(config.suggest)
        workers = [cluster.worker() for _ in range(min(cluster.cpus, MOST_IN_CLUSTER))]
        ended = cluster.close
    else:
        count = config.suggest.partition(":")[2]
        usual = min(MOST_LOCAL, max(1, len(os.sched_getaffinity(0)) - 1))
        workers = [LocalWorker() for _ in range(int(count) if count else usual)]
    suggestions = Suggestions(
        loop.policies, workers, lambda study: loop.news.tell(study.devices), telemetry.suggested
    )
    loop.decides = suggestions.policy
    end = suggestions.begin()

    def end_all() -> None:
        end()
        ended()

    return end_all


def ray_cluster(address: str) -> RayCluster:
    """Return a connection to a Ray cluster. Raises ConfigError."""
    try:
        from tuner.suggesting.cluster import RayCluster
    except ImportError as error:
        raise ConfigError(
            f"{address} needs Ray, which is not installed", hint="pip install 'jouletune[ray]'"
        ) from error
    return RayCluster(address)


def couriers(store: db.Store, config: TunerConfig) -> list[Courier]:
    """Return a courier of events for each destination; forget destinations no longer configured."""
    from tuner.service.notices.courier import Courier
    from tuner.service.notices.notifications import senders_of

    destinations = senders_of(config, utc_now)
    for delivery in store.deliveries.list():
        if delivery.destination not in {place.name for place, _ in destinations}:
            store.deliveries.forget(delivery.destination)
    tuner = name_of(config)
    return [
        Courier(
            store,
            p.name,
            p.on,
            sender,
            now=utc_now,
            rng=random.Random(),
            tuner=tuner,
            base_url=config.base_url,
        )
        for p, sender in destinations
    ]


def name_of(config: TunerConfig) -> str:
    """Return the tuner's name for people: the alphabetically first of its names, else the host's name."""
    return min(config.names, default=socket.gethostname())


def limit_threads() -> None:
    """Limit BLAS and torch to one thread: pools that compete for the cores make a fit many times slower.

    To be called before torch or numpy is imported. A value that the operator has set stays.
    """
    for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(pool, "1")


def bind(config: TunerConfig) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Without IPPROTO_TCP asyncio does not set TCP_NODELAY: a body waits 40 ms for its head's ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Each connection inherits it. By default the kernel buffers up to 4 MB for a client that does not read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    try:
        listener.bind((config.host, config.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}",
            hint="choose another port (0 takes any free one)",
        ) from None
    return listener


def names(config: TunerConfig) -> frozenset[str]:
    """Return the host names that requests may be addressed to: the configured ones, else this machine's."""
    local = {"localhost", "127.0.0.1", "::1", config.host, *config.names}
    if not config.loopback and not config.names:
        local |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower() for name in local)


def _tell_reach(config: TunerConfig, port: int) -> None:
    """Log the tuner's address and, beyond loopback, the host names that it allows."""
    log.info(
        "event=serving %s://%s:%d", "https" if config.tls.spoken else "http", config.host, port
    )
    if config.loopback:
        return
    if not config.tls.spoken:
        log.warning(
            "event=no_tls on %s:%d: a client that bypasses the proxy can read tokens and use them",
            config.host,
            port,
        )
    level = logging.INFO if config.names else logging.WARNING
    answered = ", ".join(sorted(names(config)))
    log.log(
        level,
        "event=names allowed host names are %s; add others to `names` in tuner.toml",
        answered,
    )


def ensure_token(path: Path) -> str:
    """Return the token in a file that only its owner can read; make the file if it is missing.

    Raises:
        ConfigError: other users can read the file, its token is too short, or it cannot be used.
    """
    try:
        if not path.exists():
            files.write(path, secrets.token_urlsafe(32) + "\n", 0o600)
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} is readable by other users", hint=f"chmod 600 {path}")
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot use the token file {path}: {error.strerror}") from None
    except StoreError as error:
        raise ConfigError(error.message, hint=error.hint) from None
    if len(token) < LEAST_TOKEN:
        raise ConfigError(
            f"the token file {path} is empty or its token has "
            f"fewer than {LEAST_TOKEN} characters and can be guessed",
            hint="create one: (umask 077; openssl rand -hex 32 "
            f">{shlex.quote(str(path))}); or delete the file, and the tuner creates one",
        )
    return token
