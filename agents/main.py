"""The agent's composition root: open the configured devices, run a loop per device, stop in order."""

from __future__ import annotations

import logging
import random
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path

from agents.agent.loop import DeviceAgent
from agents.agent.observing import DeviceLoop, ObservingAgent
from agents.agent.surroundings import Surroundings
from agents.config import AgentConfig, Attachment, MetricsAddress, NoDevice
from agents.holding.journal import Journal
from agents.holding.parking import Parking
from agents.host.machine import Host, HostClock, suspended_s
from agents.target.measure import Measurer
from agents.target.observe import Observer
from agents.target.side import RestartsWorkload, Side, TellsForeignLoad
from agents.target.target import Target
from agents.target.window import Usage
from agents.tuner_link.client import Backoff, TunerClient, connect
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tuner import files
from tuner.core import ConfigError, InvalidInput, TuningError
from tuner.notify import notify
from tuner.process_memory import uncollected
from tuner.tls import ClientTls

log = logging.getLogger(__name__)

GRACE_S = 20.0
"""The wait at a stop for running trials to be restored, in seconds; a hung device must not block it."""


OBSERVE_S = 60.0
"""Seconds between the beginnings of an observed device's windows, unless configured: our choice."""
LOOK_S = 30.0
"""Seconds between an agent's readings of its configuration while it has no device: our choice."""


def wait_for_device(
    read: Callable[[], AgentConfig], stop: threading.Event | None = None
) -> AgentConfig | None:
    """Return the first configuration that names a device; None at SIGTERM, SIGINT or `stop`.

    The service is ready meanwhile: a host may get its devices later.

    Raises:
        ConfigError: the first reading has another error. A later one is logged, and the file read again.
    """
    stop, first = stop or threading.Event(), True
    with _stopping_on_signals(stop):
        while not stop.is_set():
            try:
                return read()
            except NoDevice as error:
                log.warning("event=no_device why=%r looks_again_s=%g", str(error), LOOK_S)
            except ConfigError as error:
                if first:
                    raise
                log.error("event=configuration_refused why=%r", str(error))
            if first:
                notify("READY=1\nSTATUS=no device: add a [[device]] table to agent.toml")
            first, until = False, time.monotonic() + LOOK_S
            while time.monotonic() < until and not stop.wait(min(1.0, LOOK_S)):
                notify("WATCHDOG=1")
    return None


def serve(config: AgentConfig, stop: threading.Event | None = None) -> None:
    """Run all devices until SIGTERM, SIGINT or `stop`; holds stay in force afterwards.

    Raises:
        Conflict: another agent has the state folder.
        InvalidInput: a device or a workload is not valid as configured.
        Unauthorised, ProtocolMismatch: the tuner does not accept this agent.
    """
    stop = stop or threading.Event()
    alone = files.lock(config.state_dir, "agent")
    tls = ClientTls(ca=config.ca_file, cert=config.client_cert, key=config.client_key)
    with alone, connect(config.tuner, tls) as http, _stopping_on_signals(stop):
        host = Host.here(config.root, config.name)
        credentials = Credentials(config.state_dir, config.token_file, host.agent)
        around = Surroundings(
            link=TunerClient(http, credentials, Spool(config.state_dir / "spool")),
            journal=Journal(config.state_dir / "journal"),
            host=host,
            clock=HostClock(),
            now=_now,
            stop=stop,
            start=secrets.token_hex(4),
        )
        places = _open_all(config, around)
        notify("READY=1")
        try:
            with uncollected(), _serving_metrics(config, places, around):
                failed = _run(places, stop)
        finally:
            for place in places:
                place.close()
    if failed:
        raise failed[0]


def open_target(
    attachment: Attachment, device: str, seed: int, state_dir: Path, root: Path
) -> Target:
    """Open a target's devices and its workload.

    Raises:
        InvalidInput: a device or the workload does not exist, or the two do not fit.
        ActuationError: a device or the workload does not answer.
    """
    from agents.devices.catalogue import open_device, specs_in
    from agents.workloads import open_workload

    folder = state_dir / "devices" / files.file_name(device, "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # code that needs the folder fails later; a restore does not need it
        log.error("event=no_folder device=%s why=%r", device, str(error))
    with ExitStack() as opened:

        def closed_on_failure(side: Side) -> Side:
            opened.callback(side.close)
            return side

        devices = tuple(
            closed_on_failure(open_device(spec, seed=seed, state_dir=folder, root=root))
            for spec in specs_in(attachment.spec)
        )
        workload = None
        if attachment.workload:
            clock = devices[0].clock or HostClock()
            workload = closed_on_failure(
                open_workload(attachment.workload, seed=seed, state_dir=folder, clock=clock)
            )
        target = Target(devices, workload)
        for side in devices:
            if workload is not None and isinstance(side.meter, TellsForeignLoad):
                side.meter.attribute_to(workload.identity)
            if isinstance(side.actuator, RestartsWorkload):
                side.actuator.restarts(_served(workload, side))
        opened.pop_all()
    return target


def _served(workload: Side | None, unit: Side) -> Side:
    """Return the workload of a service's flags. Raises InvalidInput if it is missing."""
    if workload is None:
        raise InvalidInput(
            f"{unit.name} has no workload to measure",
            hint='give the service\'s file, too: workload = "service:/etc/jouletune/FILE.toml"',
        )
    return workload


def device_ids(attachments: Sequence[Attachment], host: str) -> list[str]:
    """Return a stable id per device, fit for a URL: `simulated-a100@host`, with a number if repeated."""
    ids: list[str] = []
    for attachment in attachments:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", attachment.spec).strip("-")
        same = sum(1 for other in ids if other.split("@")[0].split("~")[0] == plain)
        ids.append(f"{plain}{f'~{same + 1}' if same else ''}@{host}")
    return ids


def refuse_shared(attachments: Sequence[Attachment]) -> None:
    """Raise ConfigError, with its name, if a device is part of several targets."""
    from agents.devices.catalogue import specs_in

    together = [specs_in(attachment.spec) for attachment in attachments]
    named = [spec for specs in together for spec in specs]
    for specs in together:
        shared = next((s for s in specs if len(specs) > 1 and named.count(s) > 1), None)
        if shared is not None:
            raise ConfigError(
                f"{shared} is part of {'+'.join(specs)} and of another target",
                hint="a device can belong to one target only; remove it from the others",
            )


def lasting_spec(spec: str, target: Target) -> str:
    """Return a spec that opens the same devices later, when a GPU's index may have changed."""
    from agents.devices.catalogue import specs_in

    parts = zip(target.devices, specs_in(spec), strict=True)
    return "+".join(side.spec or part for side, part in parts)


class DeviceWorker:
    """A configured device: opened at the start or when it first answers, then run in a loop.

    `agent` is its loop; None while the device does not answer.
    """

    def __init__(self, id: str, open: Callable[[], DeviceLoop], rng: random.Random) -> None:
        self.id = id
        self.agent: DeviceLoop | None = None
        self._open = open
        self._backoff = Backoff(rng)

    @property
    def idle(self) -> bool:
        """Return whether it only waits, for the device or for the tuner: a stop need not wait for it."""
        return self.agent is None or self.agent.waiting.is_set()

    def open(self) -> bool:
        """Open the device; return whether it answers. Raises InvalidInput."""
        try:
            self.agent = self._open()
        except InvalidInput:
            raise
        except (TuningError, OSError) as error:
            log.error("event=not_opened device=%s why=%r", self.id, str(error))
        return self.agent is not None

    def run(self, stop: threading.Event) -> None:
        """Run the device's loop until stopped; opening is retried until the device answers.

        Raises:
            TuningError: from the agent's loop.
        """
        while self.agent is None and not stop.wait(self._backoff.failed()):
            try:
                if self.open():
                    log.info("event=opened device=%s", self.id)
            except InvalidInput as error:  # it may become valid later, as with a new file
                log.error("event=not_opened device=%s why=%r", self.id, str(error))
        if self.agent is not None:
            self.agent.run()

    def restore(self) -> None:
        """Restore the device to its hold or its original setting."""
        if self.agent is not None:
            self.agent.begin()

    def close(self) -> None:
        """Release the device; its setting stays in force."""
        if self.agent is not None:
            self.agent.close()


def _open_all(config: AgentConfig, around: Surroundings) -> list[DeviceWorker]:
    """Open every device; one that does not answer is opened later. Raises InvalidInput."""
    places: list[DeviceWorker] = []
    refuse_shared(config.devices)
    ids = device_ids(config.devices, around.host.name)
    for id, attachment in zip(ids, config.devices, strict=True):
        opening = partial(_open_one, id, attachment, config, around)
        places.append(DeviceWorker(id, opening, random.Random(f"{config.seed}/{id}/open")))
        try:
            places[-1].open()
        except InvalidInput:
            for place in places:
                place.close()
            raise
    return places


def _open_one(
    id: str, attachment: Attachment, config: AgentConfig, around: Surroundings
) -> DeviceLoop:
    """Open a device and return its loop. Raises TuningError, OSError."""
    target = open_target(attachment, id, config.seed, config.state_dir, config.root)
    with ExitStack() as failed:
        failed.callback(target.close)
        made = _observing if attachment.observe else _setting
        loop = made(id, attachment, target, config, around)
        failed.pop_all()
    return loop


def _setting(
    id: str, attachment: Attachment, target: Target, config: AgentConfig, around: Surroundings
) -> DeviceLoop:
    """Return the loop of a device that can be set. Raises InvalidInput: it cannot be parked."""
    attached = {
        "spec": lasting_spec(attachment.spec, target),
        "configured": attachment.spec,
        "seed": str(config.seed),
    }
    if attachment.workload:
        attached["workload"] = attachment.workload
    parking, after_s, added_ms = None, attachment.park_after_s, attachment.park_added_ms
    if after_s is not None and added_ms is not None:
        parking = Parking(target, after_s, added_ms)
    bench = Measurer(
        target=target,
        host_clock=around.clock,
        now=around.now,
        usage=Usage(around.host.cores, time.process_time, suspended_s),
        seed=str(config.seed),
        foreign_share=config.foreign_share,
    )
    described = target.describe(id, around.host.agent, _versions(), around.now())
    device = replace(described, labels=config.labels)
    rng = random.Random(f"{config.seed}/{id}")
    return DeviceAgent(device, bench, config.state_dir / "holds", around, attached, rng, parking)


def _observing(
    id: str, attachment: Attachment, opened: Target, config: AgentConfig, around: Surroundings
) -> ObservingAgent:
    """Return the loop of an observed device, which no longer has its actuator. Raises ActuationError."""
    around.journal.restore(id, opened)  # what it set before it was only observed
    target = opened.measured
    observer = Observer(
        target=target,
        host_clock=around.clock,
        now=around.now,
        usage=Usage(around.host.cores, time.process_time, suspended_s),
        seed=str(config.seed),
        foreign_share=1.0,  # the host's other work is a part of what is observed
    )
    described = target.describe(id, around.host.agent, _versions(), around.now())
    device = replace(described, labels=config.labels, observed=True)
    every_s = OBSERVE_S if attachment.observe_s is None else attachment.observe_s
    rng = random.Random(f"{config.seed}/{id}")
    return ObservingAgent(device, observer, every_s, around, rng, opened.close)


@contextmanager
def _serving_metrics(
    config: AgentConfig, places: Sequence[DeviceWorker], around: Surroundings
) -> Iterator[None]:
    """Serve metrics for Prometheus within the block, if configured; a failure is only logged."""
    if not config.metrics:
        yield
        return
    from prometheus_client import CollectorRegistry, generate_latest

    from agents.agent.metrics import AgentCollector
    from agents.host.http.metrics_server import serving

    registry = CollectorRegistry()
    registry.register(
        AgentCollector(
            lambda: {place.id: place.agent for place in places},
            around.link,
            around.journal,
            version("jouletune"),
        )
    )
    address = MetricsAddress.parse(config.metrics)
    with ExitStack() as open_server:
        try:
            open_server.enter_context(serving(address, lambda: generate_latest(registry)))
        except ConfigError as error:  # the devices are tuned without metrics, too
            log.error("event=metrics_not_served why=%r", str(error))
        yield


def _run(places: Sequence[DeviceWorker], stop: threading.Event) -> list[TuningError]:
    """Run a thread per device until all have ended or a stop; return the errors that ended a loop.

    A loop with an unexpected error restores its device; the others continue.
    """
    failed: list[TuningError] = []

    def work(place: DeviceWorker) -> None:
        try:
            place.run(stop)
        except TuningError as error:
            failed.append(error)
            stop.set()
        except Exception as error:
            log.exception("event=loop_broken device=%s", place.id)
            text = f"the loop of {place.id} broke: {error}"
            failed.append(TuningError(text, hint="the log has the traceback; please report it"))
            place.restore()

    threads = [
        threading.Thread(target=work, args=(place,), name=place.id, daemon=True) for place in places
    ]
    for thread in threads:
        thread.start()
    while not stop.wait(1.0) and any(thread.is_alive() for thread in threads):
        notify("WATCHDOG=1")
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(
        thread.is_alive() and not place.idle for thread, place in zip(threads, places, strict=True)
    ):
        time.sleep(0.05)
    return failed


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT; in any other thread than the main one, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: object) -> None:
        log.info("event=stopping signal=%s", signal.Signals(number).name)
        stop.set()

    former = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _versions() -> Mapping[str, str]:
    """Return the software versions that this agent reports."""
    return {"jouletune": version("jouletune")}


def _now() -> datetime:
    """Return the present UTC time."""
    return datetime.now(timezone.utc)
