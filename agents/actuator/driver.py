"""The child process that calls drivers: a call that hangs blocks only the child.

An audit of the actuator includes all that it loads. A driver therefore imports only the standard library,
its vendor's binding, this module, `tuner.errors` and `tuner.files`.
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
"""The longest message between child and actuator, in bytes: about 2,000 files."""
INIT_S = 60.0
"""The time for a new child to find the devices, before any deadline applies, in seconds: a driver that is
loaded for each program takes seconds per device."""
SLOW = "persistence mode keeps a GPU's driver loaded: systemctl enable --now nvidia-persistenced"
COMMIT_S = 70.0
"""The deadline of `commit`, in seconds: it may restart a service."""
READY = b"ready"
LAST_WAIT_S = 1.0
"""The wait for a killed child to end, in seconds; one still alive in the kernel counts as lingering."""
MOST_LINGERING = 4
"""No child is started while this many linger: it would most likely hang, too."""
PR_SET_PDEATHSIG = 1
SLEPT = " slept "
"""Divides an epoch: the first part changes if all settings are lost, the second if they may be lost."""
TRAITS: tuple[str, ...] = ("uuid", "board", "knobs", "driver", "lasting", "ceilings")
TRAITS += ("defaults", "without", "restarts", "files", "moves", "watched", "resets", "staged")
"""The description of a device; a trait that its driver lacks is empty.

`driver`: its name in actuator.toml. `lasting`: knobs whose value survives a reboot. `ceilings`: knobs that
show the limit in force, which a cap of the kernel may lower, instead of the requested one. `defaults`: the
driver's own values, if it knows them. `without`: the knobs left out, and the reason. `restarts`: a change
restarts the service there. `files`: its entries are files. `moves`: knobs that also change entries of
others, and those others; such a knob is written and restored before them. `watched`: files that change
when an entry comes or goes. `resets`: entries with the texts that a reset of the device leaves, where no
epoch shows it. `staged`: knobs that may show a value before it is in force.
"""

CONTEST_S = 600.0
"""A value that is lost twice within this time, in seconds, is another program's."""

Absent = Mapping[str, str]
"""An expected device that is missing: its `uuid`, and the reason as `absent`."""


class KnobDriver(Protocol):
    """One device. Every method raises ActuationError, or DeviceLost if the device does not answer.

    `uuid` identifies the device permanently. `epoch` changes when the driver is reloaded and has lost its
    settings, or behind SLEPT when it may have; it is read at every use.

    The actuator writes and restores entries. Each knob is one entry of the same name, unless the driver
    has `entries` and `plan`, as when a knob is several files; `write` then takes those, too. Optional
    attributes are listed in TRAITS. A driver with `restarts` also has `offer`, called with the grants,
    `commit`, called after writes, and `keeps`, which returns whether a hold may outlive the actuator.
    """

    uuid: str

    @property
    def board(self) -> str:
        """Return the device's own name."""

    @property
    def knobs(self) -> Sequence[str]:
        """Return the knobs of this kind of device; this device may lack some."""

    @property
    def epoch(self) -> str:
        """Return an identifier of this load of the driver."""

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None if the hardware does not report it."""

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob to a supported value, or to a value that `read` returned before.

        None sets the driver's own default: clocks unlocked, the default power limit.
        """


class DriverProcess:
    """Calls drivers in a child process, one call at a time, each with a deadline in seconds.

    A new child has `init_s` seconds to find the devices; if it takes longer, it continues, and the next
    call waits for it. Every call raises ActuationError or DeviceLost. A call that hung may have taken
    effect, may do so later, or never: see `lingering`. After a lost device, the next call uses a new
    child.
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
        """Return the number of killed children still alive in the kernel: a late effect is possible."""
        self._part()
        return len(self._left)

    async def renew(self) -> None:
        """End the child, so that the next call starts a new one; one that still initialises continues."""
        if self._ready:
            await self.close()

    async def close(self) -> None:
        """Kill the child, and wait LAST_WAIT_S for its end."""
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
                pass  # a late answer
        self._part()

    def _part(self) -> None:
        """Forget the children that have ended."""
        self._left = [line for line in self._left if not _ended(line)]

    async def ask(self, verb: str, uuid: str = "", *details: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a driver's answer to a verb.

        - `describe`: the devices, each with its uuid, board, knobs, ranges and traits;
        - `read`: the knobs' values, the entries (knob, value, present maximum), the entries that do not
          answer with the reason, and the epoch; the entries named in the call are read in addition;
        - `plan`: for each knob of a setting, the value of each of its entries; None is the default;
        - `write`: nothing, after an entry is written;
        - `commit`: nothing, after the written values are in force;
        - `overruled`: whether the hardware shows that another program set a knob after us;
        - `keeps`: whether a hold may outlive the actuator.
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
        if not answer.pop("ok"):
            kinds = {kind.code: kind for kind in (KnobRefused, DeviceLost)}
            raise kinds.get(answer.pop("code"), ActuationError)(answer.pop("message"), **answer)
        return answer["is"]

    async def _started(self, line: socket.socket, uuid: str) -> None:
        """Return once the child has found the devices. Raises DeviceLost if it is late or has ended."""
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
        """Fork a child and return the socket to it. Raises DeviceLost if too many children linger."""
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
        self._handle = os.pidfd_open(self._child)  # a pid may be reused after its end
        return ours


async def _received(line: socket.socket, seconds: float) -> bytes:
    """Return the next message; empty at the end of the stream. Raises TimeoutError, OSError."""
    received = asyncio.get_running_loop().sock_recv(line, MESSAGE)
    try:
        return await asyncio.wait_for(received, seconds)
    except asyncio.TimeoutError:  # not an OSError before Python 3.11
        raise TimeoutError from None


def _ended(line: socket.socket) -> bool:
    """Return whether the process at the other end has ended; then none of its system calls is pending."""
    try:
        while line.recv(MESSAGE):
            pass  # a late answer
    except BlockingIOError:
        return False
    except OSError:
        pass
    line.close()
    return True


def _become_driver_process(line: int, parent: int) -> None:
    """Close all files of the actuator except the socket to it, and end when it ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        # Not ignored: a driver needs the exit codes of the programs that it starts.
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(line: socket.socket, discover: Callable[[], Sequence[KnobDriver | Absent]]) -> None:
    """Answer the actuator's messages until it closes the socket."""
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
    """Return the answer of one device's driver to a verb. Raises DeviceLost, or the driver's error."""
    if verb == "describe":
        return [_described(driver) for driver in drivers.values()]
    driver = drivers.get(uuid)
    if driver is None or isinstance(driver, Mapping):
        raise DeviceLost(f"{uuid} was lost")
    if verb == "read":
        listed = getattr(driver, "entries", lambda *_: None)(*details)  # first: `read` may go by it
        values = driver.read()
        shown, silent = listed or ({k: (k, value, None) for k, value in values.items()}, {})
        return [values, shown, silent, driver.epoch]
    if verb == "plan":
        plan = getattr(driver, "plan", lambda knob, value: {knob: value})
        return {knob: plan(knob, value) for knob, value in details[0].items()}
    return getattr(driver, verb, lambda *_: False)(*details)


def _described(driver: KnobDriver | Absent) -> dict[str, Any]:
    """Return a device's description; it is absent, with the reason, if its driver fails.

    A knob without values is left out, because no value of it could be granted.
    """
    if isinstance(driver, Mapping):
        return dict(driver)
    try:
        ranges = driver.ranges()
        about = {name: getattr(driver, name, ()) for name in TRAITS}
        without = {knob: "the device offers no value" for knob in ranges if not ranges[knob]}
        offered = {knob: values for knob, values in ranges.items() if values}
        return {**about, "ranges": offered, "without": {**without, **dict(about["without"])}}
    except Exception as error:
        log.exception("event=device_undescribed device=%s", driver.uuid)
        why = str(error) if isinstance(error, TuningError) else f"its driver failed: {error!r}"
        return {"uuid": driver.uuid, "absent": why}


def contested(lost_s: float, now_s: float) -> bool:
    """Return whether another program sets a value that is lost now, and was at `lost_s`."""
    return now_s < lost_s + CONTEST_S


def refusal(error: TuningError) -> dict[str, Any]:
    """Return an error as an answer over a socket."""
    knob = {"knob": error.knob} if isinstance(error, KnobRefused) else {}
    problem = {"code": error.code, "message": error.message, "hint": error.hint}
    return {"ok": False, **problem, **knob}
