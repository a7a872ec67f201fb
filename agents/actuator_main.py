"""The root process's composition root: `python -P -m agents.actuator_main serve|restore FILE`."""

from __future__ import annotations

import fcntl
import grp
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from agents.actuator import Actuator
from agents.actuator_socket import Door
from agents.drivers import KnobDriver
from agents.grants import ActuatorConfig, load_config
from agents.hand import Hand
from agents.originals import Disk, Originals
from tuner.errors import ConfigError, Conflict, StoreError, TuningError
from tuner.notify import notify

log = logging.getLogger(__name__)

DRIVERS = {"nvidia": "agents.devices.nvidia.knobs", "fake": "agents.devices.fake_knobs"}
"""Name in actuator.toml to the module whose `discover` finds the devices."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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


@contextmanager
def opened(config: ActuatorConfig) -> Iterator[Actuator]:
    """Open the devices, alone.

    Raises:
        ConfigError: a driver or a grant cannot be.
        Conflict: another actuator is at work.
        StoreError: the state folder cannot be used.
    """
    for name in config.drivers:
        if name.partition(":")[0] not in DRIVERS:
            raise ConfigError(f"there is no driver {name!r}", hint=f"known: {', '.join(DRIVERS)}")
    folder = Path(config.state_dir)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise StoreError(f"cannot use the folder {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(f"another actuator uses {folder}", hint="stop that one first") from None
        hand = Hand(lambda: discover_all(config.drivers), config.deadline_s)
        try:
            boot = BOOT_ID.read_text().strip()
            yield Actuator(config, hand, Originals(folder, Disk()), boot, boot_clock)
        finally:
            hand.close()


def boot_clock() -> float:
    """Return seconds since the machine was started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def serve(config: ActuatorConfig, stopping: Callable[[], bool]) -> None:
    """Replay the journal, serve agents, and put everything back at the end."""
    gid = _gid(config.group)
    allowed = {os.geteuid(), 0}
    with opened(config) as actuator, listening(Path(config.socket), gid) as listener:
        actuator.replay()
        actuator.grant()
        door = Door(listener, actuator, lambda uid, gids: uid in allowed or gid in gids)
        notify("READY=1")
        try:
            while not stopping():
                door.step()
                notify(f"WATCHDOG=1\nSTATUS={actuator.status()}")
        finally:
            actuator.close()


@contextmanager
def listening(path: Path, gid: int | None) -> Iterator[socket.socket]:
    """Listen on a socket that only its owner and a group can open. Raises StoreError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        former = os.umask(0o117)
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            os.chown(path, -1, -1 if gid is None else gid)
            listener.listen()
        except OSError as error:
            raise StoreError(f"cannot listen on {path}: {error.strerror}") from error
        finally:
            os.umask(former)
        yield listener


def main(arguments: Sequence[str]) -> int:
    """Run one command. 0: done; 1: something is not as it should be; 2: bad input."""
    if len(arguments) != 2 or arguments[0] not in ("serve", "restore"):
        sys.stderr.write("usage: agents.actuator_main serve|restore FILE\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stop.append(got))
    try:
        config = load_config(Path(arguments[1]))
        if arguments[0] == "serve":
            serve(config, lambda: bool(stop))
            return 0
        with opened(config) as actuator:
            return 1 if actuator.replay() else 0
    except TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
        return 2 if isinstance(error, ConfigError) else 1


def _gid(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        log.warning("event=no_group group=%s", group)
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
