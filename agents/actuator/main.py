"""The root process: `python -I -m agents.actuator.main serve|restore|stay|lift FILE`.

Every device has a device; agents ask for them in JSON lines at a Unix socket. `restore` puts every device
back, `stay` keeps them there until `lift`.
"""

import asyncio
import fcntl
import grp
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from agents.actuator.device import ManagedDevice, Peer
from agents.actuator.driver import DriverProcess, KnobDriver, refusal
from agents.actuator.grants import ActuatorConfig, load_config
from agents.actuator.journal import RestoreJournal
from agents.actuator.requests import LONGEST_LINE, credentials, groups, parse, to_line
from agents.actuator.restoring import LONGEST_RETRY_S, RETRY_S, Restorer
from tuner import errors
from tuner.notify import notify

log = logging.getLogger(__name__)

Begin = Callable[[Coroutine[Any, Any, None]], object]
"""Begins a task that ends with the service."""
DRIVERS = ("cpu", "fake", "jetson", "nvidia", "nvpmodel")
"""Names in actuator.toml: of the package in agents.devices whose `knobs.discover` finds the devices."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_PEERS, RESERVED = 32, 4
"""So many connections are served, and so many more for root alone."""
BEAT_S = 0.2
"""We look so often whether to stop, and tell systemd that we live."""
MISSING = "the device is missing and not back at its original setting; the actuator searches for it"
LIFT = "once that is over, `jouletune actuator restore --all --lift`"


@dataclass(eq=False)
class ActuatorService:
    """All devices behind one door. One that hangs, hangs nobody who asks for another.

    `driver` makes what asks a driver. `missing` are the devices that have a record and do not answer,
    `blind` says why no device could be looked for, `stay` who keeps all devices at their originals.
    """

    config: ActuatorConfig
    driver: Callable[[], DriverProcess]
    originals: RestoreJournal
    boot: str
    now: Callable[[], float]
    gid: int
    devices: dict[str, ManagedDevice] = field(default_factory=dict)
    missing: Sequence[str] = ()
    blind: str = ""
    stay: str = ""
    count: int = 0
    inside: int = 0

    def __post_init__(self) -> None:
        self.finder = self.driver()

    async def find(self) -> list[ManagedDevice]:
        """Look for devices; return those that are not taken up yet."""
        self.blind, found = "", []
        try:
            found = await self.finder.ask("describe")
        except Exception as error:
            self.blind = str(error)
            log.exception("event=no_discovery")
        await self.finder.close()
        shared = (self.originals, self.boot, self.now)
        unknown = [about for about in found if about["uuid"] not in self.devices]
        return [ManagedDevice(Restorer(a, self.config, self.driver(), *shared)) for a in unknown]

    def adopt(self, devices: Iterable[ManagedDevice]) -> None:
        """Take devices up: from now on peers can ask for them."""
        self.devices |= {device.uuid: device for device in devices}
        self.missing = self.originals.missing(self.devices, self.boot)

    async def replay(self) -> dict[str, str]:
        """Put every device back to what its journal says; return what did not go back, and why."""
        await _each(device.replay() for device in self.devices.values())
        self.stay = self.originals.stays()
        for name, why in self._absent().items():
            log.error("event=device_missing device=%s why=%r", name, why)
        return self.wrong()

    def wrong(self) -> dict[str, str]:
        """Return what is not as it should be, and why."""
        wrong = {u: s.restorer.wrong for u, s in self.devices.items() if s.restorer.wrong}
        return wrong | self._absent()

    def grant(self) -> None:
        """Grant what the configuration says; before this, nothing is.

        Raises:
            ConfigError: a grant does not fit its device.
        """
        for device in self.devices.values():
            device.grant()

    async def search(self, begin: Begin, stop: Collection[int]) -> None:
        """Look for devices for as long as one is missing, and put back those that come."""
        wait_s, at = RETRY_S, self.now() + RETRY_S
        while not stop and self._absent():
            await asyncio.sleep(BEAT_S)
            if self.now() < at:
                continue
            for device in await self.find():
                await _each([device.replay()])  # before anybody may ask for it
                try:
                    device.grant()
                except errors.ConfigError as error:
                    device.restorer.paused = str(error)
                self.adopt([device])
                begin(device.mind(stop))
            wait_s = min(LONGEST_RETRY_S, 2.0 * wait_s)
            at = self.now() + wait_s

    def status(self) -> str:
        """Return in one line how the devices are."""
        how = {u: s.level for u, s in self.devices.items()} | self.wrong()
        first = [f"{self.stay} keeps all devices at their originals"] if self.stay else []
        return ", ".join([*first, *map(": ".join, how.items())]).replace("\n", " ")

    def _absent(self) -> dict[str, str]:
        """Return what is not there, and in what words."""
        blind = {"discovery": self.blind} if self.blind else {}
        return dict.fromkeys(self.missing, MISSING) | blind

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one line in and one line out; at its end its trial is over."""
        line = writer.get_extra_info("socket")
        peer = Peer(self.count + 1, *credentials(line)[:2])
        self.count, self.inside = self.count + 1, self.inside + 1
        try:
            most = MOST_PEERS + (RESERVED if peer.root else 0)
            if self.inside > most or not self._welcome(peer, groups(line)):
                log.warning("event=refused peer=%s peers=%d", peer, self.inside)
                hint = f"join its group; it serves at most {MOST_PEERS} at a time"
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
            await _each(device.gone(peer) for device in self.devices.values())

    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        return peer.root or self.gid in groups

    async def _answered(self, peer: Peer, request: bytes) -> bytes:
        try:
            return to_line({"ok": True, **await self.ask(peer, *parse(request))})
        except errors.TuningError as error:
            return to_line(refusal(error))
        except Exception as error:
            log.exception("event=broken peer=%s", peer)
            answer = refusal(errors.TuningError(repr(error), hint="the actuator's log tells more"))
            return to_line(answer | {"code": "internal"})

    async def ask(self, peer: Peer, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Do what a peer asks. Raises TuningError where it cannot be, or may not."""
        if verb == "capabilities":
            return {
                "protocol": 3,
                "lease_s": self.config.lease_s,
                "agent_grace_s": self.config.agent_grace_s,
                "devices": [device.describe() for device in self.devices.values()],
                "missing": self._absent(),
                "stay": self.stay,
            }
        if verb in ("restore_all", "stay", "lift"):
            return await self._for_all(peer, verb)
        if self.stay and verb in ("acquire", "apply", "renew", "hold"):
            raise errors.Conflict(f"{self.stay} keeps all devices at their originals", hint=LIFT)
        device = fields.pop("device")
        if device not in self.devices:
            hint = f"there are {', '.join(self.devices) or 'none'}"
            raise errors.NotFound(f"there is no device {device!r}", hint=hint)
        return await self.devices[device].ask(peer, verb, fields)

    async def _for_all(self, peer: Peer, verb: str) -> dict[str, Any]:
        """Put all devices back, to stay there or not; or let them be set again."""
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
        return {"wrong": self.wrong()}


async def _each(work: Iterable[Awaitable[Any]]) -> None:
    """Do all of it at the same time; what one raises stops no other, and is told where it happens."""
    await asyncio.gather(*work, return_exceptions=True)


def discover_all(names: Sequence[str]) -> list[KnobDriver]:
    """Return all devices of the drivers named, `NAME` or `NAME:ARGUMENT`; without those that fail."""
    found: list[KnobDriver] = []
    for name in names:
        kind, _, argument = name.partition(":")
        try:
            module = import_module(f"agents.devices.{kind}.knobs")
            found += module.discover(*filter(None, [argument]))
        except Exception as error:  # noqa: BLE001 - the other drivers' devices are found all the same
            log.error("event=no_devices driver=%s why=%r", name, error)
    return found


def lock(folder: Path) -> TextIO:
    """Have the state folder alone until what is returned is closed.

    Raises:
        StoreError: another actuator is at work, or the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = (folder / "lock").open("w")
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        why = f"cannot use the folder {folder}, or another actuator does: {error.strerror}"
        raise errors.StoreError(why, hint="stop that one first") from error
    return held


async def run(verb: str, config: ActuatorConfig, stop: Collection[int]) -> bool:
    """Replay the journal; to serve, also serve agents until stopping; then put everything back.

    Returns whether the replay left nothing altered. Raises ConfigError: a driver or a grant cannot be.
    """
    if unknown := [n for n in map(str, config.drivers) if n.partition(":")[0] not in DRIVERS]:
        hint = f"known: {', '.join(DRIVERS)}"
        raise errors.ConfigError(f"there is no driver {unknown[0]!r}", hint=hint)
    driver = partial(DriverProcess, partial(discover_all, config.drivers), config.deadline_s)
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # suspended time included
    boot, folder = BOOT_ID.read_text().strip(), Path(config.state_dir)
    with lock(folder):
        originals = RestoreJournal(folder)
        actuator = ActuatorService(config, driver, originals, boot, now, _gid(config.group))
        try:
            actuator.adopt(await actuator.find())
            left = await actuator.replay()
            if verb == "serve":
                actuator.grant()
                await serve(actuator, await listen(actuator, Path(config.socket)), stop)
            elif verb != "restore":
                originals.stay("root" if verb == "stay" else "")
        finally:
            await _each(device.close() for device in actuator.devices.values())
    return not left


async def serve(actuator: ActuatorService, server: asyncio.Server, stop: Collection[int]) -> None:
    """Serve agents until stopping. One task per device minds its time, whatever the others do."""
    notify("READY=1")
    tasks: list[asyncio.Task[None]] = []

    def begin(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(work))

    for device in actuator.devices.values():
        begin(device.mind(stop))
    begin(actuator.search(begin, stop))
    while not stop:
        notify(f"WATCHDOG=1\nSTATUS={actuator.status()}")
        await asyncio.sleep(BEAT_S)
        for task in tasks:
            if task.done():
                task.result()  # what broke ends the process, and its unit restores
    await asyncio.gather(*tasks)
    server.close()  # and do not wait: agents stay connected for as long as they like


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
    """Run one command. 0: done; 1: something is not as it should be; 2: bad input."""
    if len(arguments) != 2 or arguments[0] not in ("serve", "restore", "stay", "lift"):
        sys.stderr.write("usage: agents.actuator.main serve|restore|stay|lift FILE\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    os.umask(0o077)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stop.append(got))
    try:
        config = load_config(Path(arguments[1]))
        well = asyncio.run(run(arguments[0], config, stop))
        return 0 if well or arguments[0] == "serve" else 1
    except errors.TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
        return 2 if isinstance(error, errors.ConfigError) else 1


def _gid(group: str) -> int:
    """Return a group's id, -1 where there is no such group."""
    with suppress(KeyError):
        return grp.getgrnam(group).gr_gid
    log.warning("event=no_group group=%s", group)
    return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
