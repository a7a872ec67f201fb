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

from tuner.errors import ActuationError, DeviceLost, KnobRefused, TuningError

log = logging.getLogger(__name__)

Value = int | float | str
MESSAGE = 1 << 18
"""No message between it and the actuator is longer, in bytes: some 2,000 files."""
INIT_S = 60.0
"""A fresh child has so long to find the devices, before any deadline: a driver that is loaded for each
program takes seconds a device."""
SLOW = "persistence mode keeps a GPU's driver loaded: systemctl enable --now nvidia-persistenced"
COMMIT_S = 70.0
"""How long a driver may take to put in force what was written, as by restarting a service."""
READY = b"ready"
LAST_WAIT_S = 1.0
"""How long a killed child is waited for; one that the kernel does not let go lingers."""
MOST_LINGERING = 4
"""How many may linger before no further child is started: what holds them holds the next one, too."""
PR_SET_PDEATHSIG = 1
TRAITS: tuple[str, ...] = ("uuid", "board", "knobs", "driver", "lasting", "ceilings")
TRAITS += ("probed", "defaults", "without", "restarts", "files", "moves", "watched")
"""A device's description; what its driver need not have is empty.

`driver`: its name in actuator.toml. `lasting`: knobs whose value outlives a boot. `ceilings`: those
that show the limit in force, which a cap of the kernel may lower, instead of the one that was requested.
`probed`: those that firmware may have locked. `defaults`: the driver's own values, where it knows them.
`without`: those left out, and why. `restarts`: a change restarts what runs there. `files`: its entries are
files. `moves`: knobs that change the entries of others besides their own, and so are written and restored
before them, and which others. `watched`: files whose change says that an entry came or went.
"""

Absent = Mapping[str, str]
"""In a device's place: the `uuid` of what ought to be there, and why it is `absent`."""


class KnobDriver(Protocol):
    """One device. Every method raises ActuationError, or DeviceLost where it no longer answers.

    `uuid` names the device permanently. `epoch` is another one once
    the driver was reloaded and has lost its settings; it is requested again at every use.

    What is written and restored are its entries: one for each knob, of the same name, unless it has
    `entries`, `plan` and `put`, as where a knob is several files. It may also have, as attributes, what
    differs from knob to knob: see TRAITS. One that `restarts` has `offer`, which is called with what is
    granted, `commit`, after writes, and `keeps`, whether a hold may stay at the actuator's end.
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
        """Set a knob to a supported value, or to one that `read` returned before.

        None is the driver's own default: clocks unlocked, the default power limit.
        """


class DriverProcess:
    """Asks drivers in a child process, each call within a deadline in seconds; one call at a time.

    A fresh child has `init_s` to find the devices; one that takes longer continues, and the next call waits
    for it. Every call raises ActuationError or DeviceLost. After a call that hung, what it was to do may or
    may not have been done, or be done later: see `lingering`. Whatever lost a device, the next call
    asks a fresh child.
    """

    def __init__(
        self,
        discover: Callable[[], Sequence[KnobDriver | Absent]],
        deadline_s: float,
        init_s: float = INIT_S,
    ) -> None:
        self._discover = discover
        self._deadline_s = deadline_s
        self._init_s = init_s
        self._ready = False
        self._line: socket.socket | None = None
        self._child = self._handle = -1
        self._left: list[socket.socket] = []

    @property
    def lingering(self) -> int:
        """How many killed children the kernel has not let go: what they were doing may still be done."""
        self._part()
        return len(self._left)

    async def renew(self) -> None:
        """Have the next call ask a fresh child; one that starts continues, for it would restart."""
        if self._ready:
            await self.close()

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
        """Release the children that are gone."""
        self._left = [line for line in self._left if not _ended(line)]

    async def ask(self, verb: str, uuid: str = "", *details: Any) -> Any:  # noqa: ANN401 - JSON
        """Return what a driver answers.

        `describe`: the devices, each with its uuid, board, knobs, ranges and traits;
        `read`: its knobs' values, its entries (knob, value, and the most that it may show now), those that
        do not answer and why, and its driver's epoch; the entries named are read besides its own;
        `plan`: for each knob of a setting, the value of each of its entries; None is its default;
        `write`: nothing, once an entry is written;
        `commit`: nothing, once what was written is in force;
        `overruled`: whether the hardware shows that another program has set a knob since we did;
        `keeps`: whether a hold may stay at the actuator's end.
        """
        problem, answer, allowed_s = "ended", dict[str, Any](), self._deadline_s
        try:
            line = self._line or self._start()
            await self._started(line, uuid)
            line.send(json.dumps([verb, uuid, *details]).encode())
            allowed_s = COMMIT_S if verb == "commit" else allowed_s
            answer = json.loads(await _received(line, allowed_s) or b"{}")
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            problem = f"did not answer within {allowed_s:g} s" if late else f"ended: {error}"
        finally:
            if not answer or answer.get("code") == DeviceLost.code:
                await self.renew()
        if not answer:
            raise DeviceLost(f"{uuid or 'discovery'}: the driver {problem} ({verb})")
        if not answer["ok"]:
            if answer["code"] == KnobRefused.code:
                raise KnobRefused(answer["message"], hint=answer["hint"], knob=answer["knob"])
            kind = DeviceLost if answer["code"] == DeviceLost.code else ActuationError
            raise kind(answer["message"], hint=answer["hint"])
        return answer["is"]

    async def _started(self, line: socket.socket, uuid: str) -> None:
        """Return once the child has found the devices. Raises DeviceLost while it has not."""
        if self._ready:
            return
        try:
            self._ready = await _received(line, self._init_s) == READY
        except TimeoutError:
            why = f"the driver did not initialise within {self._init_s:g} s"
            raise DeviceLost(f"{uuid or 'discovery'}: {why}", hint=SLOW) from None
        if not self._ready:
            await self.close()
            raise DeviceLost(f"{uuid or 'discovery'}: the driver ended while it initialised")

    def _start(self) -> socket.socket:
        if self.lingering >= MOST_LINGERING:
            raise DeviceLost(f"{self.lingering} driver processes hang and cannot be killed")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
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
        self._line, self._handle, self._ready = ours, -1, False
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
    """Return whether the process at the other end has ended, with all its system calls."""
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
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        # Not ignored: a driver sees how a program ended that it started.
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(line: socket.socket, discover: Callable[[], Sequence[KnobDriver | Absent]]) -> None:
    discovered = discover()
    drivers = {d["uuid"] if isinstance(d, Mapping) else d.uuid: d for d in discovered}
    line.send(READY)
    while message := line.recv(MESSAGE):
        try:
            answer = {"ok": True, "is": _answered(drivers, *json.loads(message))}
        except TuningError as error:
            answer = refusal(error)
        except Exception as error:
            log.exception("event=driver_broken")
            answer = refusal(ActuationError(f"the driver failed: {error!r}"))
        line.send(json.dumps(answer).encode())


def _answered(
    drivers: Mapping[str, KnobDriver | Absent],
    verb: str,
    uuid: str,
    *details: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    if verb == "describe":
        return [about for driver in drivers.values() if (about := _described(driver))]
    driver = drivers.get(uuid)
    if driver is None or isinstance(driver, Mapping):
        raise DeviceLost(f"{uuid} was lost")
    if verb == "read":
        values = driver.read()
        named = {k: (k, value, None) for k, value in values.items()}, dict[str, str]()
        shown, silent = getattr(driver, "entries", lambda *_: named)(*details)
        return [values, shown, silent, driver.epoch]
    if verb == "plan":
        plan = getattr(driver, "plan", lambda knob, value: {knob: value})
        return {knob: plan(knob, value) for knob, value in details[0].items()}
    if verb == "write":
        return getattr(driver, "put", driver.write)(*details)
    return getattr(driver, verb, lambda *_: False)(*details)


def _described(driver: KnobDriver | Absent) -> dict[str, Any]:
    """Return what a device is; nothing where it does not tell, which is logged.

    A knob without a value is left out: nothing could be granted of it.
    """
    if isinstance(driver, Mapping):
        return dict(driver)
    try:
        ranges = driver.ranges()
        about = {name: getattr(driver, name, ()) for name in TRAITS}
        without = {knob: "the device offers no value" for knob in ranges if not ranges[knob]}
        offered = {knob: values for knob, values in ranges.items() if values}
        return {**about, "ranges": offered, "without": {**without, **dict(about["without"])}}
    except Exception:
        log.exception("event=device_undescribed device=%s", driver.uuid)
        return {}


def refusal(error: TuningError) -> dict[str, Any]:
    """Return an error as it is sent over a line."""
    knob = {"knob": error.knob} if isinstance(error, KnobRefused) else {}
    problem = {"code": error.code, "message": error.message, "hint": error.hint}
    return {"ok": False, **problem, **knob}
