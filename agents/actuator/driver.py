"""The process that touches drivers: a child, so that a call that hangs hangs only the child.

Whatever the actuator loads is audited with it: a driver imports the standard library, its vendor's
binding, this module, `tuner.errors` and `tuner.files`, nothing else.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

Value = int | float | str
MESSAGE = 1 << 18
"""No message between it and the actuator is longer, in bytes."""
AT_FIRST = 4
"""A fresh child finds the devices before its first answer; it has so many deadlines for that."""
LAST_WAIT_S = 1.0
"""How long a killed child is waited for; one that the kernel does not let go lingers."""
MOST_LINGERING = 4
"""So many may linger before no further child is started: what holds them holds the next one, too."""
PR_SET_PDEATHSIG = 1


class KnobDriver(Protocol):
    """One device. Every method raises ActuationError, or DeviceLost where it no longer answers.

    `uuid` names the device for good. `epoch` is another one once
    the driver was reloaded and has forgotten what was set; it is asked for anew at every use.
    """

    uuid: str

    @property
    def board(self) -> str:
        """What the device calls itself."""

    @property
    def knobs(self) -> Sequence[str]:
        """The knobs that devices of this kind may have; this one may refuse some."""

    @property
    def epoch(self) -> str:
        """Which load of the driver this is."""

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None where the hardware does not tell it."""

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob to a supported value, or to one that `read` told before.

        None is the driver's own default: clocks unlocked, the default power limit.
        """


class DriverProcess:
    """Asks drivers in a child process, each call within a deadline in seconds; one call at a time.

    Every call raises ActuationError or DeviceLost. After a call that hung, what it was to do may or
    may not have been done, or be done later: see `lingering`. Whatever lost a device, the next call
    asks a fresh child.
    """

    def __init__(self, discover: Callable[[], Sequence[KnobDriver]], deadline_s: float) -> None:
        self._discover = discover
        self._deadline_s = deadline_s
        self._line: socket.socket | None = None
        self._child = self._handle = -1
        self._left: list[socket.socket] = []

    @property
    def lingering(self) -> int:
        """How many killed children the kernel has not let go: what they were doing may still be done."""
        self._part()
        return len(self._left)

    async def close(self) -> None:
        """End the child."""
        line, self._line = self._line, None
        if line is None:
            return
        with suppress(OSError):  # it has ended by itself
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        with suppress(OSError):
            os.close(self._handle)
        self._left.append(line)
        with suppress(OSError):
            while await _received(line, LAST_WAIT_S):
                pass  # it answers late
        self._part()

    def _part(self) -> None:
        """Let go of the children that are gone."""
        self._left = [line for line in self._left if not _ended(line)]

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401 - JSON
        """Return what a driver answers.

        `describe`: the devices, each with its uuid, board, knobs and ranges;
        `read`: what a device's knobs stand at, and its driver's epoch;
        `write`: nothing, once it is done.
        """
        seconds = self._deadline_s * (1 if self._line else AT_FIRST)
        problem, answer = "ended", dict[str, Any]()
        try:
            line = self._line or self._start()
            line.send(json.dumps([verb, uuid, *details]).encode())
            answer = json.loads(await _received(line, seconds) or b"{}")
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            problem = f"did not answer within {seconds:g} s" if late else f"ended: {error}"
        finally:
            if not answer or answer.get("code") == DeviceLost.code:
                await self.close()
        if not answer:
            raise DeviceLost(f"{uuid or 'discovery'}: the driver {problem} ({verb})")
        if not answer["ok"]:
            kind = DeviceLost if answer["code"] == DeviceLost.code else ActuationError
            raise kind(answer["message"], hint=answer["hint"])
        return answer["is"]

    def _start(self) -> socket.socket:
        if self.lingering >= MOST_LINGERING:
            raise DeviceLost(f"{self.lingering} driver processes hang and cannot be ended")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                _become_driver_process(theirs.fileno(), parent)
                _serve(theirs, self._discover)
            except Exception:
                log.exception("event=driver_process_broken")
            finally:
                os._exit(1)
        theirs.close()
        ours.setblocking(False)
        self._line, self._handle = ours, -1
        self._handle = os.pidfd_open(self._child)  # its number may be another's once it has ended
        return ours


async def _received(line: socket.socket, seconds: float) -> bytes:
    """Return the next message, empty at the end. Raises TimeoutError, OSError."""
    received = asyncio.get_running_loop().sock_recv(line, MESSAGE)
    try:
        return await asyncio.wait_for(received, seconds)
    except asyncio.TimeoutError:  # no OSError before Python 3.11
        raise TimeoutError from None


def _ended(line: socket.socket) -> bool:
    """Return whether whoever was at the other end is gone, all its system calls done."""
    try:
        while line.recv(MESSAGE):
            pass  # it answered late
    except BlockingIOError:
        return False
    except OSError:
        pass
    line.close()
    return True


def _become_driver_process(line: int, parent: int) -> None:
    """Keep nothing of the actuator's but the line to it, and end with it, whatever ends it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(line: socket.socket, discover: Callable[[], Sequence[KnobDriver]]) -> None:
    drivers = {driver.uuid: driver for driver in discover()}
    while message := line.recv(MESSAGE):
        try:
            answer = {"ok": True, "is": _answered(drivers, *json.loads(message))}
        except TuningError as error:
            answer = refusal(error)
        except Exception as error:
            log.exception("event=driver_broken")
            answer = refusal(ActuationError(f"the driver broke: {error!r}"))
        line.send(json.dumps(answer).encode())


def _answered(drivers: Mapping[str, KnobDriver], verb: str, uuid: str, *details: Any) -> Any:  # noqa: ANN401
    if verb == "describe":
        return [about for driver in drivers.values() if (about := _described(driver))]
    if uuid not in drivers:
        raise DeviceLost(f"{uuid} is gone")
    driver = drivers[uuid]
    if verb == "read":
        return [driver.read(), driver.epoch]
    return driver.write(*details)


def _described(driver: KnobDriver) -> dict[str, Any]:
    """Return what a device is; nothing where it does not tell, which is logged."""
    try:
        about = {"board": driver.board, "knobs": driver.knobs, "ranges": driver.ranges()}
        return {"uuid": driver.uuid, **about}
    except Exception:
        log.exception("event=device_undescribed device=%s", driver.uuid)
        return {}


def refusal(error: TuningError) -> dict[str, Any]:
    """Return an error as it is told over a line."""
    return {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}
