"""The hand that touches drivers: a child process, so that a call that hangs hangs only the child."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.drivers import KnobDriver, Value
from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

Discover = Callable[[], Sequence[KnobDriver]]

MESSAGE = 1 << 18
"""No message between hand and actuator is longer, in bytes."""
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Described:
    """A device as its driver tells of it."""

    uuid: str
    board: str
    driver: str
    ranges: Mapping[str, Sequence[Value]]
    cannot: Mapping[str, str]


class Hand:
    """Asks drivers in a child process, each call within a deadline in seconds.

    Every method raises ActuationError or DeviceLost. After a call that hung, what it was to do may or
    may not have been done; the child is killed and the next call starts another.
    """

    def __init__(self, discover: Discover, deadline_s: float) -> None:
        self._discover = discover
        self._deadline_s = deadline_s
        self._line: socket.socket | None = None
        self._child = 0

    def describe(self) -> list[Described]:
        """Return the devices there are."""
        return [Described(**device) for device in self._ask("describe", "")]

    def read(self, uuid: str) -> tuple[dict[str, Value | None], str]:
        """Return what the device's knobs stand at, and its driver's epoch."""
        values, epoch = self._ask("read", uuid)
        return values, epoch

    def put(self, uuid: str, knob: str, value: Value | None) -> None:
        """Write a knob; None puts it to the driver's own default."""
        self._ask("put", uuid, knob, value)

    def close(self) -> None:
        """End the child. One that the kernel does not let go is waited for a second, then left."""
        if self._line is not None:
            os.kill(self._child, signal.SIGKILL)
            select.select([self._line], [], [], 1.0)
            self._line.close()
            self._line = None

    def _ask(self, verb: str, uuid: str, *details: Value | None) -> Any:  # noqa: ANN401 - JSON
        line = self._line or self._start()
        try:
            line.send(json.dumps([verb, uuid, *details]).encode())
            ready, _, _ = select.select([line], [], [], self._deadline_s)
            answer = line.recv(MESSAGE) if ready else b""
        except OSError:
            ready, answer = [line], b""
        if not answer:
            self.close()
            what = "ended" if ready else f"did not answer within {self._deadline_s:g} s"
            raise DeviceLost(f"{uuid or 'discovery'}: the driver {what} ({verb})")
        told = json.loads(answer)
        if "error" in told:
            kind = DeviceLost if told["error"] == DeviceLost.code else ActuationError
            raise kind(told["message"], hint=told["hint"])
        return told["is"]

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                _become_hand(theirs.fileno(), parent)
                _serve(theirs, self._discover)
            except Exception:
                log.exception("event=hand_broken")
            finally:
                os._exit(1)
        theirs.close()
        self._line = ours
        return ours


def _become_hand(line: int, parent: int) -> None:
    """Keep nothing of the actuator's but the line to it, and end with it, whatever ends it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(line: socket.socket, discover: Discover) -> None:
    drivers = {driver.uuid: driver for driver in discover()}
    while message := line.recv(MESSAGE):
        verb, uuid, *details = json.loads(message)
        try:
            if verb != "describe" and uuid not in drivers:
                raise DeviceLost(f"{uuid} is not there any more")
            answer: dict[str, Any] = {"is": _do(drivers, verb, uuid, details)}
        except TuningError as error:
            answer = {"error": error.code, "message": error.message, "hint": error.hint}
        line.send(json.dumps(answer).encode())


def _do(
    drivers: Mapping[str, KnobDriver], verb: str, uuid: str, details: list[Any]
) -> list[Any] | None:
    if verb == "describe":
        found = [
            Described(d.uuid, d.board, d.driver, d.ranges(), d.cannot) for d in drivers.values()
        ]
        return [asdict(device) for device in found]
    driver = drivers[uuid]
    if verb == "read":
        return [dict(driver.read()), driver.epoch]
    knob, value = details
    if value is None:
        driver.reset(knob)
    else:
        driver.write(knob, value)
    return None
