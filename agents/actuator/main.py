"""The root process: `agents.actuator.main serve FILE [FOLDER]`, or `restore|stay|lift|leave [FOLDER]`.

`serve` answers agents, which send JSON lines to a Unix socket. `restore` restores every device; with
`--wait S` it first waits up to S seconds for offline CPUs. `stay` keeps the devices at their originals
until `lift`. `leave` takes them out of their budgets. These four need only the journal: in FOLDER, else in
$STATE_DIRECTORY, else in the folder of the last `serve`.
"""

import asyncio
import fcntl
import grp
import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from agents.actuator.device import ManagedDevice, Peer
from agents.actuator.driver import Absent, DriverProcess, KnobDriver, refusal
from agents.actuator.grants import DRIVERS, ActuatorConfig, load_config
from agents.actuator.journal import RestoreJournal, file_name
from agents.actuator.requests import LONGEST_LINE, credentials, groups, parse, to_line
from agents.actuator.restoring import LONGEST_RETRY_S, RETRY_S, Restorer
from tuner import errors
from tuner.notify import notify

log = logging.getLogger(__name__)

VERBS = {"serve": (1, 2), **dict.fromkeys(("restore", "stay", "lift", "leave"), (0, 1))}
"""The numbers of arguments that each verb accepts."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_PEERS, RESERVED = 32, 4
"""The most connections that are served, and the additional ones for root alone."""
WAITING = 3
"""The exit code if only files of offline CPUs are left to restore."""
BEAT_S = 0.2
"""The period of our checks for a stop, and of systemd's watchdog pings, in seconds."""
MISSING = "the device is missing and not restored; the actuator keeps searching for it"
LIFT = "when it is done: `jouletune actuator restore --all --lift`"


@dataclass(eq=False)
class ActuatorService:
    """All devices behind one socket. A hanging device does not block requests for another.

    `driver` makes a driver process; `claim` locks a device for this process. `missing` has the recorded
    devices that do not answer. `absent` has the reason for each one that is unavailable: discovery, a
    driver or the device does not answer, or another process has it. `stay` is the user that keeps all
    devices at their originals.
    """

    config: ActuatorConfig
    driver: Callable[[], DriverProcess]
    originals: RestoreJournal
    boot: str
    now: Callable[[], float]
    gid: int
    claim: Callable[[Mapping[str, Any]], None] = lambda about: None
    devices: dict[str, ManagedDevice] = field(default_factory=dict)
    missing: Sequence[str] = ()
    absent: dict[str, str] = field(default_factory=dict)
    stay: str = ""
    count: int = 0
    inside: int = 0

    def __post_init__(self) -> None:
        self.finder = self.driver()

    async def find(self) -> list[ManagedDevice]:
        """Search for devices; return the new ones, each locked for this process."""
        listed, devices = [], list[ManagedDevice]()
        try:
            listed = await self.finder.ask("describe")
            self.absent = {about["uuid"]: about["absent"] for about in listed if "absent" in about}
        except Exception as error:
            self.absent = {"discovery": str(error)}
            log.exception("event=no_discovery")
        await self.finder.renew()
        shared = (self.originals, self.boot, self.now)
        registered = self.devices.keys() | self.absent
        for about in (about for about in listed if about["uuid"] not in registered):
            try:
                self.claim(about)
                restorer = Restorer(about, self.config, self.driver(), *shared, taken=self.taken)
                devices.append(ManagedDevice(restorer))
            except errors.Conflict as error:
                self.absent[about["uuid"]] = error.message
        return devices

    def taken(self, by: str) -> dict[str, str]:
        """Return the files that devices other than `by` have changed, each with its device."""
        others = [(u, d.restorer.record.entries) for u, d in self.devices.items() if u != by]
        return {os.path.realpath(n): u for u, entries in others for n in entries if n[:1] == "/"}

    def adopt(self, devices: Iterable[ManagedDevice]) -> None:
        """Manage devices: from now on peers can request them."""
        self.devices |= {device.uuid: device for device in devices}
        self.missing = self.originals.missing(self.devices, self.boot)

    async def replay(self) -> dict[str, str]:
        """Restore every device from its journal; return those not restored, with the reasons."""
        await _each(device.replay() for device in self.devices.values())
        self.stay = self.originals.stays()
        for name, why in self._absent().items():
            log.error("event=device_missing device=%s why=%r", name, why)
        return self.wrong()

    async def leave(self) -> dict[str, str]:
        """Take every device out of its budget; return those not at their originals, with the reasons."""
        root = Peer(0, os.getpid(), 0)
        await _each(device.leave_budget(root) for device in self.devices.values())
        still = (u for u, s in self.devices.items() if s.restorer.record.budget.floor)
        return dict.fromkeys(still, "it is in its budget still") | self.wrong()

    def wrong(self) -> dict[str, str]:
        """Return the devices that need attention, with the reasons."""
        wrong = {u: s.restorer.wrong for u, s in self.devices.items() if s.restorer.wrong}
        return wrong | self._absent()

    def waiting(self) -> dict[str, int]:
        """Return for each device the number of files that wait for their CPU, or for the end of a cap."""
        return {uuid: len(device.restorer.waiting) for uuid, device in self.devices.items()}

    async def search(self, stop: Collection[int]) -> None:
        """Search repeatedly while a device is missing, and restore those that appear."""
        wait_s, at = RETRY_S, self.now() + RETRY_S
        while not stop and self._absent():
            await asyncio.sleep(BEAT_S)
            if self.now() < at:
                continue
            for device in await self.find():
                await _each([device.replay()])  # before a peer can request it
                self.adopt([device])
            wait_s = min(LONGEST_RETRY_S, 2.0 * wait_s)
            at = self.now() + wait_s

    def status(self) -> str:
        """Return the state of all devices in one line."""
        waits = {u: f", {n} files wait" if n else "" for u, n in self.waiting().items()}
        how = {u: s.level + waits[u] for u, s in self.devices.items()} | self.wrong()
        first = [f"{self.stay} keeps all devices at original settings"] if self.stay else []
        return ", ".join([*first, *map(": ".join, how.items())]).replace("\n", " ")

    def _absent(self) -> dict[str, str]:
        """Return the missing and unavailable devices, with the reasons."""
        return dict.fromkeys(self.missing, MISSING) | self.absent

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one line in and one line out; when it closes, its trial ends."""
        line = writer.get_extra_info("socket")
        peer = Peer(self.count + 1, *credentials(line)[:2])
        self.count, self.inside = self.count + 1, self.inside + 1
        try:
            most = MOST_PEERS + (RESERVED if peer.root else 0)
            if self.inside > most or not self._welcome(peer, groups(line)):
                log.warning("event=refused peer=%s peers=%d", peer, self.inside)
                hint = f"add the user to its group; at most {MOST_PEERS} clients can connect"
                raise errors.Unauthorised(f"{peer} may not use the actuator", hint=hint)
            while True:
                writer.write(await self._answered(peer, await reader.readuntil()))
                await writer.drain()
        except (errors.TuningError, asyncio.LimitOverrunError) as error:
            long = errors.InvalidInput(f"a request is at most {LONGEST_LINE} bytes")
            writer.write(to_line(refusal(error if isinstance(error, errors.TuningError) else long)))
        except (EOFError, OSError, asyncio.CancelledError):
            log.info("event=connection_ended peer=%s", peer)
        finally:
            self.inside -= 1
            writer.close()
            await _each(device.disconnected(peer) for device in self.devices.values())

    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        """Return whether a peer may connect: root, or a member of the group."""
        return peer.root or self.gid in groups

    async def _answered(self, peer: Peer, request: bytes) -> bytes:
        """Return the answer to a request as a line; an error is an answer, too."""
        try:
            return to_line({"ok": True, **await self.ask(peer, *parse(request))})
        except errors.TuningError as error:
            return to_line(refusal(error))
        except Exception as error:
            log.exception("event=broken peer=%s", peer)
            answer = refusal(errors.TuningError(repr(error), hint="see the actuator's log"))
            return to_line(answer | {"code": "internal"})

    async def ask(self, peer: Peer, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Run a peer's verb. Raises TuningError if it fails or is not permitted."""
        if verb == "capabilities":
            names = ("lease_s", "agent_grace_s", "min_restart_s")
            times = {name: getattr(self.config, name) for name in names}
            about = {"protocol": 4, "missing": self._absent(), "stay": self.stay}
            return {**times, **about, "devices": [d.describe() for d in self.devices.values()]}
        if verb in ("restore_all", "stay", "lift"):
            return await self._for_all(peer, verb)
        if self.stay and verb in ("acquire", "apply", "renew", "hold", "lease_job"):
            raise errors.Conflict(f"{self.stay} keeps all devices at original settings", hint=LIFT)
        device = fields.pop("device")
        if device not in self.devices:
            hint = f"devices: {', '.join(self.devices) or 'none'}"
            raise errors.NotFound(f"there is no device {device!r}", hint=hint)
        answer = await self.devices[device].ask(peer, verb, fields)
        if self.stay:
            await self.devices[device].release_driver()
        return answer

    async def _for_all(self, peer: Peer, verb: str) -> dict[str, Any]:
        """Restore all devices (`stay`: and keep them there), or let them be set again (`lift`)."""
        if not peer.root:
            raise errors.Unauthorised(f"only root may {verb}")
        if verb == "lift":
            self.originals.stay("")
            self.stay = ""
        else:
            self.stay = str(peer) if verb == "stay" else self.stay
            await _each(device.ask(peer, "restore", {}) for device in self.devices.values())
        if verb == "stay":
            self.originals.stay(self.stay)
            await _each(device.release_driver() for device in self.devices.values())
        return {"wrong": self.wrong()}


async def _each(work: Iterable[Awaitable[Any]]) -> None:
    """Run all tasks at the same time; an error in one does not stop another."""
    await asyncio.gather(*work, return_exceptions=True)


def discover_all(names: Sequence[str], config: ActuatorConfig) -> list[KnobDriver | Absent]:
    """Return the devices of these drivers, each `NAME` or `NAME:ARGUMENT`, and those that do not answer."""
    discovered: list[KnobDriver | Absent] = []
    for name in names:
        kind, _, argument = name.partition(":")
        try:
            module = import_module(f"agents.devices.{kind}.knobs")
            for driver in module.discover(*filter(None, [argument])):
                if not isinstance(driver, Mapping):
                    driver.driver = name
                    getattr(driver, "offer", lambda _: None)(config.granted(driver.uuid))
                discovered.append(driver)
        except Exception as error:  # noqa: BLE001 - a failure of one driver must not hide another's devices
            log.error("event=no_devices driver=%s why=%r", name, error)
            why = f"the driver does not answer: {error}; the actuator keeps searching for devices"
            discovered.append({"uuid": name, "absent": why})
    return discovered


def lock(path: Path) -> None:
    """Lock a file or a folder until this process ends; nothing is written to it.

    Raises:
        Conflict: another actuator has it.
        OSError: it cannot be opened.
    """
    held = os.open(path, os.O_RDONLY | (0 if path.is_dir() else os.O_CREAT), 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        why = f"another actuator on this host uses {path.name}"
        raise errors.Conflict(why, hint="stop that one first") from None


def claim(about: Mapping[str, Any]) -> None:
    """Lock a device on this host, independent of the state folder. Raises Conflict.

    If no lock file can be created, as on a read-only disk, the device is used without one.
    """
    name, argument = file_name(about["uuid"]), about["driver"].partition(":")[2]
    where = hashlib.sha256(os.path.realpath(argument).encode()).hexdigest()[:12]
    path = run_folder() / "devices" / (f"{name}@{where}" if argument else name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock(path)
    except OSError as error:
        log.warning("event=unlocked device=%s why=%r", name, str(error))


def run_folder() -> Path:
    """Return the folder for files that last until the next boot: $JOULETUNE_RUN, else /run/jouletune."""
    return Path(os.environ.get("JOULETUNE_RUN", "/run/jouletune"))


def state_folder(argument: str = "") -> Path:
    """Return the journal's folder: the argument, else systemd's, else that of the last `serve`."""
    folder = argument or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    with suppress(OSError):
        folder = folder or (run_folder() / "state").read_text()
    return Path(folder or ActuatorConfig().state_dir)


async def run(
    verb: str, config: ActuatorConfig, folder: Path, stop: Collection[int], wait_s: float = 0.0
) -> int:
    """Replay the journal; for `serve`, then serve agents until stopped; at the end restore all devices.

    Returns 1 if the replay left a device altered, WAITING if only CPUs stayed offline for more than
    `wait_s` seconds, else 0. Raises StoreError if the folder cannot be used.
    """
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # includes suspended time
    originals, serves = RestoreJournal(folder, run_folder() / "journal"), verb == "serve"
    names = originals.drivers() | {*(config.drivers if serves else ())}
    names |= {*DRIVERS} if "" in names and not serves else set()
    find = partial(discover_all, sorted(names - {""}), config)
    driver = partial(DriverProcess, find, config.deadline_s)
    shared = (originals, BOOT_ID.read_text().strip(), now, _gid(config.group), claim)
    actuator = ActuatorService(config, driver, *shared)
    alive = asyncio.create_task(_ping_watchdog(actuator))
    try:
        if serves or verb == "stay":
            folder.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            lock(folder)
        actuator.adopt(await actuator.find())
        left, until = await actuator.replay(), now() + wait_s
        while any(actuator.waiting().values()) and now() < until and not stop:
            await asyncio.sleep(BEAT_S)
            left = await actuator.replay()
        waiting = sum(actuator.waiting().values())
        for device in (d for d in actuator.devices.values() if d.restorer.waiting):
            log.warning("event=waiting device=%s entries=%r", device.uuid, device.restorer.waiting)
        if verb == "leave":
            left = await actuator.leave()
        if serves:
            with suppress(OSError):  # for a `restore` without a folder
                (run_folder() / "state").write_text(str(folder.absolute()))
            await serve(actuator, await listen(actuator, Path(config.socket)), stop)
        elif verb in ("stay", "lift"):
            originals.stay("root" if verb == "stay" else "")
    except OSError as error:
        raise errors.StoreError(f"cannot use {folder}: {error}", hint="make it writable") from error
    finally:
        await _each(device.close() for device in actuator.devices.values())
        await actuator.finder.close()
        alive.cancel()
    return 1 if left else WAITING if waiting else 0


async def _ping_watchdog(actuator: ActuatorService) -> None:
    """Ping systemd's watchdog and update the status, also while drivers start and devices are restored."""
    while True:
        notify(f"WATCHDOG=1\nSTATUS={actuator.status()}")
        await asyncio.sleep(BEAT_S)


async def serve(actuator: ActuatorService, server: asyncio.Server, stop: Collection[int]) -> None:
    """Serve agents until stopped. One task per device ends its leases, independent of the other devices."""
    notify("READY=1")
    tasks = {"search": asyncio.create_task(actuator.search(stop))}
    while not stop:
        for uuid in actuator.devices.keys() - tasks.keys():
            tasks[uuid] = asyncio.create_task(actuator.devices[uuid].mind(stop))
        if not Path(actuator.config.socket).is_socket():  # it was removed
            server.close()
            with suppress(errors.StoreError):
                server = await listen(actuator, Path(actuator.config.socket))
        await asyncio.sleep(BEAT_S)
        for task in tasks.values():
            if task.done():
                task.result()  # an error ends the process, and its unit restores
    await asyncio.gather(*tasks.values())
    server.close()  # no wait for connections: agents keep theirs open


async def listen(actuator: ActuatorService, path: Path) -> asyncio.Server:
    """Listen on a socket that only its owner and a group can open. Raises StoreError."""
    try:
        server = await asyncio.start_unix_server(actuator.serve, path, limit=LONGEST_LINE)
        os.chown(path, -1, actuator.gid)
        path.chmod(0o660)
    except OSError as error:
        raise errors.StoreError(f"cannot listen on {path}: {error}") from error
    return server


def main(arguments: Sequence[str]) -> int:
    """Run one command. 0: done; 1: a device needs attention; 2: bad input; 3: a CPU is offline."""
    verb, *rest = arguments or [""]
    wait_s = 0.0
    if rest[:1] == ["--wait"] and verb == "restore" and rest[1:2] and rest[1].isdecimal():
        wait_s, rest = float(rest[1]), rest[2:]
    if len(rest) not in VERBS.get(verb, ()):
        usage = "agents.actuator.main serve FILE [FOLDER], or restore [--wait S]|stay|lift|leave [FOLDER]"
        sys.stderr.write(f"usage: {usage}\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    os.umask(0o077)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _: stop.append(signum))
    config, folder, wrong = ActuatorConfig(), state_folder("".join(rest[verb == "serve" :])), ""
    if verb == "serve":
        try:
            config = load_config(Path(rest[0]))
            if len(rest) == 1 and not os.environ.get("STATE_DIRECTORY"):
                folder = Path(config.state_dir)
        except errors.ConfigError as error:  # altered devices must be restored even so
            verb, wrong = "restore", str(error)
    elif folder.is_file():
        wrong = f"{folder} is not a folder; give the folder of the journal, or no folder"
        folder = state_folder()
    try:
        code = asyncio.run(run(verb, config, folder, stop, wait_s))
        code = 0 if verb == "serve" else code
    except errors.TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
        code = 1
    if wrong:
        log.error("event=config why=%r", wrong)
    return 2 if wrong else code


def _gid(group: str) -> int:
    """Return a group's id; -1, and a warning in the log, if it does not exist."""
    with suppress(KeyError):
        return grp.getgrnam(group).gr_gid
    log.warning("event=no_group group=%s", group)
    return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
