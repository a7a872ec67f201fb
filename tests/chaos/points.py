"""Kill points: every boundary between two system or driver calls is counted, and one is the end."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents.actuator.driver import Absent, DriverProcess, KnobDriver, Value, _answered
from agents.actuator.journal import RestoreJournal
from tuner.errors import DeviceLost

SIZE = 1 << 18
HEAD = struct.Struct("qqdq")
PR_SET_CHILD_SUBREAPER = 36
_open = os.open
AFTERWARDS = ("accept", "recv")
"""Calls that a loop may make without effect: a boundary follows only a call with effect."""


class Points:
    """A counter shared by processes; the process that reaches `at` kills the victim and itself.

    With `at` 0 nothing dies, `labels` has the call after each boundary, and `note` is called with the
    number of each boundary. `shift_s` is added to the actuator's clock. A driver's child and its parent
    count concurrently, so there is a lock; the kernel releases it if its process dies.
    """

    def __init__(self, at: int = 0, note: Callable[[int], None] = lambda number: None) -> None:
        self.at = at
        self._note, self._noting = note, False
        self._shared = mmap.mmap(-1, SIZE)
        self._set(0, 0, 0.0, 0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # Opened each time, because the driver's child closes inherited files; not by a counted `os.open`.
        line = _open(__file__, os.O_RDONLY)
        try:
            fcntl.flock(line, fcntl.LOCK_EX)
            yield
        finally:
            os.close(line)

    def adopt(self) -> None:
        """Make this process the victim."""
        with self._alone():
            count, _, shift, length = self._get()
            self._set(count, os.getpid(), shift, length)

    def tick(self, label: str) -> None:
        if self._noting:
            return
        with self._alone():
            count, victim, shift, length = self._get()
            count += 1
            if self.at == 0:
                word = label.encode() + b"\n"
                self._shared[HEAD.size + length : HEAD.size + length + len(word)] = word
                length += len(word)
                self._noting = True
                self._note(count)
                self._noting = False
            self._set(count, victim, shift, length)
            if count == self.at:
                os.kill(victim, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    @property
    def labels(self) -> list[str]:
        length = self._get()[3]
        return self._shared[HEAD.size : HEAD.size + length].decode().splitlines()

    @property
    def reached(self) -> bool:
        """Whether the chosen point was reached."""
        return self._get()[0] >= self.at

    @property
    def shift_s(self) -> float:
        return self._get()[2]

    @shift_s.setter
    def shift_s(self, seconds: float) -> None:
        with self._alone():
            count, victim, _, length = self._get()
            self._set(count, victim, seconds, length)

    def _get(self) -> tuple[int, int, float, int]:
        count, victim, shift, length = HEAD.unpack_from(self._shared)
        return count, victim, shift, length

    def _set(self, *values: float) -> None:
        HEAD.pack_into(self._shared, 0, *values)


class CountedDisk(RestoreJournal):
    """The journal's disk, with a boundary before each call."""

    def __init__(self, points: Points, folder: Path) -> None:
        super().__init__(folder)
        self._points = points

    def read(self, path: Path) -> bytes:
        self._points.tick(f"disk read {path.name}")
        return super().read(path)

    def write(self, path: Path, content: bytes) -> None:
        self._points.tick(f"disk write {path.name}")
        super().write(path, content)

    def sync(self, path: Path) -> None:
        self._points.tick(f"disk sync {path.name}")
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._points.tick(f"disk rename {new.name}")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._points.tick(f"disk remove {path.name}")
        super().remove(path)


class CountedDriver:
    """A driver with a boundary before each call."""

    def __init__(self, inner: KnobDriver, points: Points) -> None:
        self._inner = inner
        self._points = points
        self.uuid = inner.uuid
        self.board = inner.board
        self.knobs = inner.knobs

    @property
    def epoch(self) -> str:
        self._points.tick("driver epoch")
        return self._inner.epoch

    def __getattr__(self, trait: str) -> Any:  # noqa: ANN401 - whatever it has besides
        return getattr(self._inner, trait)

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        return self._inner.ranges()

    def read(self) -> Mapping[str, Value | None]:
        self._points.tick("driver read")
        return self._inner.read()

    def write(self, knob: str, value: Value | None) -> None:
        self.put(knob, value)

    def put(self, name: str, value: Value | None) -> None:
        self._points.tick(f"driver write {name}={value}")
        getattr(self._inner, "put", self._inner.write)(name, value)


class InlineDriver(DriverProcess):
    """Calls the drivers in this process; an ended child loses its state, like a process."""

    def __init__(
        self, found: Callable[[], Sequence[KnobDriver | Absent]], called: Callable[[str], None]
    ) -> None:
        super().__init__(lambda: (), 1.0)
        self._found, self._called = found, called
        self._drivers: dict[str, KnobDriver | Absent] = {}

    async def close(self) -> None:
        self._drivers = {}

    async def renew(self) -> None:
        await self.close()

    async def ask(self, verb: str, uuid: str = "", *details: Any) -> Any:  # noqa: ANN401
        self._called(f"driver {verb}")
        found = self._drivers.values() or self._found()
        self._drivers = {d["uuid"] if isinstance(d, Mapping) else d.uuid: d for d in found}
        try:
            return _answered(self._drivers, verb, uuid, *details)
        except DeviceLost:
            self._drivers = {}
            raise


def count_calls(points: Points, owner: object, names: Mapping[str, str]) -> None:
    """Put a boundary at calls of this process, by replacing the functions on their owner."""
    here = os.getpid()

    def counted(name: str, label: str) -> Callable[..., Any]:
        call = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if os.getpid() != here:
                return call(*args, **kwargs)
            if name not in AFTERWARDS:
                points.tick(label)
            answer = call(*args, **kwargs)
            if name in AFTERWARDS:
                points.tick(label)
            return answer

        return counting

    for name, label in names.items():
        setattr(owner, name, counted(name, label))


def count_sockets(points: Points) -> None:
    """Put a boundary before every socket call of this process."""
    names = ("accept", "recv", "send", "sendall", "connect")
    count_calls(points, socket.socket, {name: f"socket {name}" for name in names})


def count_files(points: Points) -> None:
    """Put a boundary before the file calls by which the agent stores its state."""
    names = ("fsync", "replace", "unlink", "open")
    count_calls(points, os, {name: f"os {name}" for name in names})


def fork(work: Callable[[], object]) -> int:
    """Run a function in a fork of this process, and return the child's id; the child never returns."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def reap_all() -> list[int]:
    """Wait until no descendant of our process group is left; return how our children ended."""
    ends = []
    while True:
        try:
            ends.append(os.waitpid(0, 0)[1])
        except ChildProcessError:
            return ends


def inherit_orphans() -> None:
    """Become the parent of orphaned grandchildren, so that their end can be awaited."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
