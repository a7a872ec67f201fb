"""One worker process as the server sees it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from tuner.core import DeviceLost

Reply = Mapping[str, Any]

START_S = 60.0

SPIN = {"GOMP_SPINCOUNT": "10000"}
"""How long libgomp's threads spin at a barrier before they sleep; ours, the default is 30 times that.

On two cores of a virtual machine at batch 1 this was as fast as the default while nobody else used
the cores (8.2 ms an item, against 16 where threads sleep at once), and 4 times as fast while
somebody did (100 ms against 400): a thread that spins away its turn keeps the other one waiting.
Whoever sets the variable outside has it so.
"""


class Instance(asyncio.Protocol):
    """A worker process: questions go out in order, answers come back in the same order."""

    def __init__(
        self, process: subprocess.Popen[bytes], on_end: Callable[[Instance], None]
    ) -> None:
        self._process = process
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._asked: deque[tuple[asyncio.Future[Reply], asyncio.TimerHandle]] = deque()
        self._unread = b""
        self._cpu_s = 0.0
        self.placed: tuple[tuple[int, ...], int] | None = None
        self.leaving = False
        self.ended = asyncio.get_running_loop().create_future()
        self.ready = self._expect(START_S)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def idle(self) -> bool:
        """Whether the next question would be answered at once."""
        return not self._asked and not self.leaving

    def cpu_s(self) -> float:
        """Return the CPU seconds the process has used, all threads, to the nanosecond.

        Linux derives a process's CPU clock from its id (clock_getcpuclockid(3)); unlike
        /proc/PID/stat it does not count in ticks of 10 ms.
        """
        with suppress(OSError):  # Ending just now: the last reading stands until it is reaped.
            self._cpu_s = time.clock_gettime((~self.pid << 3) | 2)
        return self._cpu_s

    def ask(self, message: Mapping[str, Any], within_s: float) -> asyncio.Future[Reply]:
        """Send a message; the future is its reply, or DeviceLost when the process ends first.

        A process that takes longer than `within_s` hangs and is killed.
        """
        reply = self._expect(within_s)
        if self._transport is not None:
            self._transport.write(json.dumps(message).encode() + b"\n")
        return reply

    async def leave(self, within_s: float) -> None:
        """Let the process finish what it was asked, and end; kill it where that takes longer."""
        self.leaving = True
        if self._transport is not None:
            self._transport.write_eof()
        await asyncio.wait([self.ended], timeout=within_s)
        self._process.kill()
        await self.ended

    def _expect(self, within_s: float) -> asyncio.Future[Reply]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._asked.append((future, loop.call_later(within_s, self._process.kill)))
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by asyncio)."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Give each complete line to the oldest question (called by asyncio)."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            future, timer = self._asked.popleft()
            timer.cancel()
            if not future.done():
                future.set_result(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """Reap the process and fail what it was asked (called by asyncio).

        The kernel closes a dying process's sockets after it has freed its memory, so that this
        wait is short. Reaping here, in the loop, keeps the sum of CPU times consistent.
        """
        self._transport = None
        self._process.kill()
        status = self._process.wait()
        self.ended.set_result(None)
        for future, timer in self._asked:
            timer.cancel()
            if not future.done():
                future.set_exception(
                    DeviceLost(f"worker process {self.pid} ended with status {status}")
                )
                future.exception()  # Asked or not, it is no unhandled error.
        self._asked.clear()
        self._on_end(self)


async def launch(seed: int, width: int, on_end: Callable[[Instance], None]) -> Instance:
    """Start a worker process; await its `ready` before asking it anything."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "agents.workloads.reference.worker"]
        options = {"--fd": theirs.fileno(), "--seed": seed, "--width": width}
        process = subprocess.Popen(
            command + [str(word) for option in options.items() for word in option],
            pass_fds=[theirs.fileno()],
            env={**SPIN, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    _, instance = await loop.create_unix_connection(lambda: Instance(process, on_end), sock=ours)
    return instance
