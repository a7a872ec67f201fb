"""The root process's composition root: `python -P -m agents.actuator_main serve|restore FILE`."""

from __future__ import annotations

import asyncio
import fcntl
import grp
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TextIO

from agents.actuator import LONGEST_LINE, Actuator
from agents.drivers import KnobDriver
from agents.grants import ActuatorConfig, load_config
from agents.hand import Hand
from agents.originals import Disk, Originals
from agents.slots import Slot
from tuner.errors import ConfigError, Conflict, StoreError, TuningError
from tuner.notify import notify

log = logging.getLogger(__name__)

DRIVERS = {"nvidia": "agents.devices.nvidia.knobs", "fake": "agents.devices.fake_knobs"}
"""Name in actuator.toml to the module whose `discover` finds the devices."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TICK_S = 0.2
"""What has a time ends at most so much late, the driver's own time apart."""

Stopping = Callable[[], bool]


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
        Conflict: another actuator is at work.
        StoreError: the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = (folder / "lock").open("w")
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another actuator uses {folder}", hint="stop that one first") from None
    except OSError as error:
        raise StoreError(f"cannot use the folder {folder}: {error.strerror}") from error
    return held


async def run(verb: str, config: ActuatorConfig, stopping: Stopping) -> bool:
    """Replay the journal; to serve, also serve agents until stopping; then put everything back.

    Returns whether the replay left nothing altered. Raises ConfigError: a driver or a grant cannot be.
    """
    for name in config.drivers:
        if name.partition(":")[0] not in DRIVERS:
            raise ConfigError(f"there is no driver {name!r}", hint=f"known: {', '.join(DRIVERS)}")

    hand = partial(Hand, partial(discover_all, config.drivers), config.deadline_s)
    boot, folder = BOOT_ID.read_text().strip(), Path(config.state_dir)
    with lock(folder):
        finder, originals = hand(), Originals(folder, Disk())
        found = await finder.ask("describe")
        await finder.close()
        slots = [Slot(about, config, hand(), originals, boot, boot_clock) for about in found]
        actuator = Actuator(config, slots, originals, _gid(config.group))
        try:
            left = await actuator.replay()
            if verb == "serve":
                actuator.grant()
                await serve(actuator, await listen(actuator, Path(config.socket)), stopping)
        finally:
            await actuator.close()
    return not left


def boot_clock() -> float:
    """Return seconds since the machine was started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def serve(actuator: Actuator, server: asyncio.Server, stopping: Stopping) -> None:
    """Serve agents until stopping. One task per device minds its time, whatever the others do."""
    notify("READY=1")
    async with server, asyncio.TaskGroup() as tasks:
        for slot in actuator.slots.values():
            tasks.create_task(keep_time(slot, stopping))
        while not stopping():
            notify(f"WATCHDOG=1\nSTATUS={actuator.status()}")
            await asyncio.sleep(TICK_S)


async def keep_time(slot: Slot, stopping: Stopping) -> None:
    """End what is over on one device, as long as we serve."""
    while not stopping():
        await slot.tick()
        await asyncio.sleep(TICK_S)


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
        well = asyncio.run(run(arguments[0], config, lambda: bool(stop)))
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
