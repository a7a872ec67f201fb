"""The root process: `python -P -m agents.actuator_main serve|restore FILE`.

Every device has a slot; agents ask for them in JSON lines at a Unix socket.
"""

import asyncio
import fcntl
import grp
import json
import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from agents.grants import NUMBER, ActuatorConfig, checked, load_config
from agents.hand import Hand, KnobDriver, refusal
from agents.originals import Originals
from agents.slots import Peer, Slot
from tuner.errors import ConfigError, InvalidInput, NotFound, StoreError, TuningError, Unauthorised
from tuner.notify import notify

log = logging.getLogger(__name__)

DRIVERS = {"nvidia": "agents.devices.nvidia.knobs", "fake": "agents.devices.fake_knobs"}
"""Name in actuator.toml to the module whose `discover` finds the devices."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LONGEST_LINE = 1 << 16
"""A request is no longer than this, in bytes."""
MOST_PEERS = 32
BEAT_S = 0.2
"""We look so often whether to stop, and tell systemd that we live."""
SO_PEERGROUPS = 59

ONE = {"device": str}
LEASE = {**ONE, "lease_s": NUMBER}
VERBS: Mapping[str, Mapping[str, Any]] = {
    "capabilities": {},
    "read": ONE,
    "acquire": LEASE,
    "apply": {**ONE, "setting": dict},
    "renew": LEASE,
    "hold": {**ONE, "setting": dict, "valid_for_s": NUMBER},
    "release": ONE,
    "restore": ONE,
}
"""Verb to its fields, all of them demanded, and of what kind each is."""


class Actuator:
    """All devices behind one door. One that hangs, hangs nobody who asks for another."""

    def __init__(
        self, config: ActuatorConfig, slots: Iterable[Slot], originals: Originals, gid: int
    ) -> None:
        self.slots = {slot.uuid: slot for slot in slots}
        self._config = config
        self._originals = originals
        self.gid = gid
        self._count = 0
        self._inside = 0

    async def replay(self) -> dict[str, str]:
        """Put every device back to what its journal says; return what did not go back, and why."""
        await asyncio.gather(*(slot.replay() for slot in self.slots.values()))
        left = {u: s.paused or s.trouble for u, s in self.slots.items() if s.paused or s.trouble}
        for name in self._originals.others(self.slots):
            log.error("event=device_missing journal=%s", name)
            left[name] = "its device is not there"
        return left

    def grant(self) -> None:
        """Grant what the configuration says; before this, nothing is.

        Raises:
            ConfigError: a grant does not fit its device.
        """
        for uuid, slot in self.slots.items():
            slot.allowed = slot.terms.values(uuid, slot.about["ranges"], slot.about["knobs"])

    def status(self) -> str:
        """Return in one line how the devices are."""
        return ", ".join(f"{u}: {s.paused or s.trouble or s.level}" for u, s in self.slots.items())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one line in and one line out; at its end its trial is over."""
        peer, groups = self._known(writer.get_extra_info("socket"))
        self._inside += 1
        try:
            if self._inside > MOST_PEERS or not self._welcome(peer, groups):
                log.warning("event=refused peer=%s peers=%d", peer, self._inside)
                hint = f"join its group; it serves at most {MOST_PEERS} at a time"
                raise Unauthorised(f"{peer} may not use the actuator", hint=hint)
            while True:
                writer.write(await self._answered(peer, await reader.readuntil()))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_line(refusal(InvalidInput(f"a request is at most {LONGEST_LINE} bytes"))))
        except TuningError as error:
            writer.write(_line(refusal(error)))
        except (EOFError, OSError, asyncio.CancelledError):
            log.info("event=connection_ended peer=%s", peer)
        finally:
            self._inside -= 1
            writer.close()
            await asyncio.gather(*(slot.gone(peer) for slot in self.slots.values()))

    def _known(self, line: socket.socket) -> tuple[Peer, set[int]]:
        """Return who is at the other end, and in what groups, as the kernel knows it."""
        ids = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", ids)
        groups = line.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)
        self._count += 1
        return Peer(self._count, pid, uid), {gid, *(g for (g,) in struct.iter_unpack("i", groups))}

    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        return peer.uid in (0, os.geteuid()) or self.gid in groups

    async def _answered(self, peer: Peer, request: bytes) -> bytes:
        try:
            return _line({"ok": True, **await self.ask(peer, *parse(request))})
        except TuningError as error:
            return _line(refusal(error))

    async def ask(self, peer: Peer, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Do what a peer asks. Raises TuningError where it cannot be, or may not."""
        if verb == "capabilities":
            return {
                "protocol": 2,
                "lease_s": self._config.lease_s,
                "agent_grace_s": self._config.agent_grace_s,
                "devices": [
                    {**s.about, "granted": s.allowed, "original": s.terms.original}
                    for s in self.slots.values()
                ],
            }
        device = fields.pop("device")
        if device not in self.slots:
            hint = f"there are {', '.join(self.slots) or 'none'}"
            raise NotFound(f"there is no device {device!r}", hint=hint)
        return await self.slots[device].ask(peer, verb, fields)


def parse(request: bytes) -> tuple[str, dict[str, Any]]:
    """Return a request's verb and its fields.

    Raises:
        InvalidInput: it is not a JSON object, or not exactly what the verb demands.
    """
    try:
        table = json.loads(request, parse_constant=int)  # refuses NaN and Infinity
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    verb = table.pop("verb", None) if isinstance(table, dict) else None
    if not isinstance(verb, str) or verb not in VERBS:
        raise InvalidInput("the request names no verb", hint=f"verbs are {', '.join(VERBS)}")
    checked(verb, table, VERBS[verb], InvalidInput)
    if table.keys() != VERBS[verb].keys():
        raise InvalidInput(f"{verb} takes: {', '.join(VERBS[verb]) or 'nothing'}")
    if any(isinstance(value, bool | dict | list) for value in table.get("setting", {}).values()):
        raise InvalidInput(f"{verb}: a knob's value is a number or a text")
    return verb, table


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def discover_all(names: Sequence[str]) -> list[KnobDriver]:
    """Return all devices of the drivers named, `NAME` or `NAME:ARGUMENT`; without those that fail."""
    found: list[KnobDriver] = []
    for name in names:
        kind, _, argument = name.partition(":")
        try:
            found += import_module(DRIVERS[kind]).discover(*filter(None, [argument]))
        except TuningError as error:
            log.error("event=no_devices driver=%s why=%r", name, str(error))
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
        raise StoreError(why, hint="stop that one first") from error
    return held


async def run(verb: str, config: ActuatorConfig, stop: Collection[int]) -> bool:
    """Replay the journal; to serve, also serve agents until stopping; then put everything back.

    Returns whether the replay left nothing altered. Raises ConfigError: a driver or a grant cannot be.
    """
    for name in map(str, config.drivers):
        if name.partition(":")[0] not in DRIVERS:
            raise ConfigError(f"there is no driver {name!r}", hint=f"known: {', '.join(DRIVERS)}")

    hand = partial(Hand, partial(discover_all, config.drivers), config.deadline_s)
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # suspended time included
    boot, folder = BOOT_ID.read_text().strip(), Path(config.state_dir)
    with lock(folder):
        finder, originals = hand(), Originals(folder)
        found = await finder.ask("describe")
        await finder.close()
        slots = [Slot(about, config, hand(), originals, boot, now) for about in found]
        actuator = Actuator(config, slots, originals, _gid(config.group))
        try:
            left = await actuator.replay()
            if verb == "serve":
                actuator.grant()
                await serve(actuator, await listen(actuator, Path(config.socket)), stop)
        finally:
            await asyncio.gather(*(slot.close() for slot in slots))
    return not left


async def serve(actuator: Actuator, server: asyncio.Server, stop: Collection[int]) -> None:
    """Serve agents until stopping. One task per device minds its time, whatever the others do."""
    notify("READY=1")
    async with asyncio.TaskGroup() as tasks:
        for slot in actuator.slots.values():
            tasks.create_task(slot.mind(stop))
        while not stop:
            notify(f"WATCHDOG=1\nSTATUS={actuator.status()}")
            await asyncio.sleep(BEAT_S)
    server.close()  # and do not wait: agents stay connected for as long as they like


async def listen(actuator: Actuator, path: Path) -> asyncio.Server:
    """Listen on a socket that only its owner and a group can open. Raises StoreError."""
    try:
        server = await asyncio.start_unix_server(actuator.serve, path, limit=LONGEST_LINE)
        os.chown(path, -1, actuator.gid)
        path.chmod(0o660)
    except OSError as error:
        raise StoreError(f"cannot listen on {path}: {error}") from error
    return server


def main(arguments: Sequence[str]) -> int:
    """Run one command. 0: done; 1: something is not as it should be; 2: bad input."""
    if len(arguments) != 2 or arguments[0] not in ("serve", "restore"):
        sys.stderr.write("usage: agents.actuator_main serve|restore FILE\n")
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
    except TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
        return 2 if isinstance(error, ConfigError) else 1


def _gid(group: str) -> int:
    """Return a group's id, -1 where there is no such group."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        log.warning("event=no_group group=%s", group)
        return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
