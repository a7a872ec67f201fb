"""The agent's composition root: open what is attached, start a loop per device, end in good order."""

from __future__ import annotations

import logging
import random
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from agents import durable
from agents.agent import DeviceAgent, Surroundings
from agents.config import AgentConfig, Attachment
from agents.credentials import Credentials
from agents.holds import Holder
from agents.host import Host, HostClock, sole, uncollected
from agents.journal import Entry, Journal
from agents.link import Link, connect
from agents.measure import Bench
from agents.pair import Pair
from agents.spool import Spool
from agents.watch import ended_report
from agents.windows import Usage
from tuner.core import ActuationError, InvalidInput, TuningError
from tuner.notify import notify

log = logging.getLogger(__name__)

GRACE_S = 20.0
"""How long a stop waits for trials to be undone; a hung device must not keep the process."""


def serve(config: AgentConfig, stop: threading.Event | None = None) -> None:
    """Work all devices until SIGTERM, SIGINT or `stop`; holds stay in force when it ends.

    Raises:
        Conflict: another agent has the state folder.
        InvalidInput: a device or workload cannot be what the configuration says.
        Unauthorised, ProtocolMismatch: the tuner does not want this agent.
        ActuationError: no device could be opened.
    """
    stop = stop or threading.Event()
    with sole(config.state_dir), connect(config.tuner) as http, _stopping_on_signals(stop):
        host = Host.here(config.root, config.name)
        credentials = Credentials(config.state_dir, config.token_file, host.agent)
        around = Surroundings(
            link=Link(http, credentials, Spool(config.state_dir / "spool")),
            journal=Journal(config.state_dir / "journal"),
            host=host,
            clock=HostClock(),
            now=_now,
            stop=stop,
            start=secrets.token_hex(4),
        )
        agents = _open_all(config, around)
        notify("READY=1")
        try:
            with uncollected():
                failed = _run(agents, stop)
        finally:
            for agent in agents:
                agent.close()
    if failed:
        raise failed[0]


def revert(state_dir: Path, root: Path = Path("/")) -> list[str]:
    """End every hold of this host and put its devices back as they were found; return which.

    Goes on after a failure, and done twice does nothing.

    Raises:
        Conflict: an agent is running on the folder.
        ActuationError: something did not go back; the message says all that did not.
    """
    done: list[str] = []
    failures: list[str] = []
    with sole(state_dir):
        journal = Journal(state_dir / "journal")
        for entry in journal.devices():
            try:
                _revert(entry, state_dir, root, journal)
            except TuningError as error:
                failures.append(str(error))
            else:
                log.info("event=reverted device=%s", entry.device)
                done.append(entry.device)
    if failures:
        raise ActuationError("; ".join(failures), hint="mend that, then revert again")
    return done


def _revert(entry: Entry, state_dir: Path, root: Path, journal: Journal) -> None:
    if "spec" not in entry.attached:
        raise ActuationError(
            f"{entry.device}: its journal does not tell what to open ({entry.damaged})",
            hint="start the agent with that device: it restores what it can",
        )
    attachment = Attachment(entry.attached["spec"], entry.attached.get("workload", ""))
    seed = int(entry.attached.get("seed", "0"))
    pair = open_pair(attachment, entry.device, seed, state_dir, root)
    try:
        holder = Holder(
            entry.device,
            pair,
            folder=state_dir / "holds",
            journal=journal,
            attached=entry.attached,
            host=Host.here(root),
            clock=HostClock(),
            now=_now,
        )
        try:
            holder.end("the operator reverted it")
        finally:
            _tell_ended(entry.device, holder, Spool(state_dir / "spool"))
    finally:
        pair.close()


def _tell_ended(device: str, holder: Holder, spool: Spool) -> None:
    """Keep the word that a hold ended for the next agent to send."""
    hold = holder.untold
    if hold is None:
        return
    spool.put(ended_report(device, hold))
    holder.told()


def open_pair(attachment: Attachment, device: str, seed: int, state_dir: Path, root: Path) -> Pair:
    """Open a device and its workload.

    Raises:
        InvalidInput: there is no such device or workload, or the two do not go together.
        ActuationError: it does not answer.
    """
    from agents.devices.catalogue import open_device
    from agents.workloads import open_workload

    folder = state_dir / "devices" / durable.file_name(device, "")
    folder.mkdir(parents=True, exist_ok=True)
    side = open_device(attachment.spec, seed=seed, state_dir=folder, root=root)
    if not attachment.workload:
        return Pair(side)
    try:
        workload = open_workload(
            attachment.workload, seed=seed, state_dir=folder, clock=side.clock or HostClock()
        )
    except BaseException:
        side.close()
        raise
    try:
        return Pair(side, workload)
    except InvalidInput:
        workload.close()
        side.close()
        raise


def device_ids(attachments: Sequence[Attachment], host: str) -> list[str]:
    """Return a stable id per device, fit for a URL: `simulated-a100@host`, numbered where it repeats."""
    found: list[str] = []
    for attachment in attachments:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", attachment.spec).strip("-")
        same = sum(1 for other in found if other.split("@")[0].split("~")[0] == plain)
        found.append(f"{plain}{f'~{same + 1}' if same else ''}@{host}")
    return found


def _open_all(config: AgentConfig, around: Surroundings) -> list[DeviceAgent]:
    """Open every device; one that does not answer is left out as long as another does."""
    agents: list[DeviceAgent] = []
    trouble: TuningError | None = None
    ids = device_ids(config.devices, around.host.name)
    for id, attachment in zip(ids, config.devices, strict=True):
        try:
            agents.append(_open_one(id, attachment, config, around))
        except InvalidInput:
            for agent in agents:
                agent.close()
            raise
        except TuningError as error:
            log.error("event=not_opened device=%s why=%r", id, str(error))
            trouble = error
    if not agents and trouble is not None:
        raise trouble
    return agents


def _open_one(
    id: str, attachment: Attachment, config: AgentConfig, around: Surroundings
) -> DeviceAgent:
    pair = open_pair(attachment, id, config.seed, config.state_dir, config.root)
    attached = {"spec": attachment.spec, "seed": str(config.seed)}
    if attachment.workload:
        attached["workload"] = attachment.workload
    bench = Bench(
        pair=pair,
        host_clock=around.clock,
        now=around.now,
        usage=Usage(around.host.cores, time.process_time),
        seed=str(config.seed),
    )
    device = pair.describe(id, around.host.agent, _versions(), around.now())
    rng = random.Random(f"{config.seed}/{id}")
    return DeviceAgent(device, bench, config.state_dir / "holds", around, attached, rng)


def _run(agents: Sequence[DeviceAgent], stop: threading.Event) -> list[TuningError]:
    """Run a thread per device until all have ended or a stop; return what ended any of them.

    A loop that breaks puts its device back and does not stop the others.
    """
    failed: list[TuningError] = []

    def work(agent: DeviceAgent) -> None:
        try:
            agent.run()
        except TuningError as error:
            failed.append(error)
            stop.set()
        except Exception as error:
            log.exception("event=loop_broken device=%s", agent.device.id)
            text = f"the loop of {agent.device.id} broke: {error}"
            failed.append(TuningError(text, hint="the log has the traceback; please report it"))
            agent.begin()

    threads = [
        threading.Thread(target=work, args=(agent,), name=agent.device.id, daemon=True)
        for agent in agents
    ]
    for thread in threads:
        thread.start()
    while not stop.wait(1.0) and any(thread.is_alive() for thread in threads):
        notify("WATCHDOG=1")
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(
        thread.is_alive() and not agent.waiting.is_set()
        for thread, agent in zip(threads, agents, strict=True)
    ):
        time.sleep(0.05)
    return failed


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT, where this is the thread that may say so."""
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
    return {"jouletune": version("jouletune")}


def _now() -> datetime:
    return datetime.now(UTC)
