"""The server's handle of one worker process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from agents.workloads.reference.allocators import GLIBC_KEEP, allocators
from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.knobs import BATCH_SIZES
from agents.workloads.reference.memory import own_bytes
from agents.workloads.reference.slab import Inputs, Slab
from tuner.core import ActuationError, DeviceLost

Reply = Mapping[str, Any]


class Placement(NamedTuple):
    """The cores of an instance, its number of computing threads, and its process's allocator.

    The allocator is one of the installed ones, or empty for the C library's default.
    """

    cores: tuple[int, ...]
    threads: int
    allocator: str = ""


START_S = 120.0
PLACE_S = 60.0
BATCH_S = 30.0

SPIN = {"GOMP_SPINCOUNT": "10000"}
"""The length of libgomp's spin at a barrier before a thread sleeps. Our choice; the default is 30 times
as long.

On two cores of a virtual machine at batch 1 this was as fast as the default while no other program used the
cores (8.2 ms per item, against 16 if threads sleep at once), and 4 times as fast while another program
did (100 ms against 400): a thread that spins keeps the other one from its core. A variable that is
already set takes precedence.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The configuration of a server's worker processes; `items` is the largest batch."""

    model: Model
    seed: int
    width: int
    inputs: Inputs
    items: int = BATCH_SIZES[-1]


class Instance(asyncio.Protocol):
    """A worker process: messages are answered in the order in which they are sent."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        slab: Slab,
        inputs: Inputs,
        on_end: Callable[[Instance], None],
    ) -> None:
        self._process = process
        self._slab = slab
        self._inputs = inputs
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._pending: deque[tuple[asyncio.Future[Reply], asyncio.TimerHandle]] = deque()
        self._unread = b""
        self._cpu_s = 0.0
        self.placed: Placement | None = None
        self.leaving = False
        self.ended = asyncio.get_running_loop().create_future()
        self.ready = self._expect(START_S)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def idle(self) -> bool:
        """Whether the next message would be answered immediately."""
        return not self._pending and not self.leaving

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process, all threads, in nanosecond resolution.

        Linux derives a process's CPU clock from its id (clock_getcpuclockid(3)); unlike
        /proc/PID/stat it does not count in ticks of 10 ms.
        """
        with suppress(OSError):  # It is ending: the last reading counts until it is reaped.
            self._cpu_s = time.clock_gettime((~self.pid << 3) | 2)
        return self._cpu_s

    def own_bytes(self) -> int:
        """Return the process's own memory in bytes, which is the need of one more instance."""
        return own_bytes(self.pid)

    def run(self, items: Sequence[int]) -> asyncio.Future[list[int]]:
        """Start a batch and return the future of its labels, or of DeviceLost if the process ends.

        Only one batch may run, as the next one overwrites its inputs.
        """
        self._slab.fill(self._inputs, items)
        labels: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self.ask({"run": len(items)}, BATCH_S).add_done_callback(partial(self._labelled, labels))
        return labels

    def _labelled(self, labels: asyncio.Future[list[int]], reply: asyncio.Future[Reply]) -> None:
        """Pass a batch's labels, or its error, to the caller."""
        error = reply.exception()
        if labels.done():
            return
        if error is not None:
            labels.set_exception(error)
        else:
            labels.set_result(self._slab.labels(int(reply.result()["done"])))

    async def place(self, placement: Placement, batch_size: int) -> None:
        """Pin the process, set its threads, warm it up, and check the result.

        Raises:
            ActuationError: it reports other values.
            DeviceLost: it ended meanwhile.
        """
        cores, threads = sorted(placement.cores), placement.threads
        message = {"cores": cores, "threads": threads, "batch_size": batch_size}
        reply = await self.ask(message, PLACE_S)
        if reply != {"cores": cores, "threads": threads}:
            raise ActuationError(f"worker process {self.pid} is at {reply}, not at {message}")
        self.placed = placement

    def ask(self, message: Mapping[str, Any], within_s: float) -> asyncio.Future[Reply]:
        """Send a message and return the future of its reply, or of DeviceLost if the process ends.

        A process that takes longer than `within_s` hangs and is killed.
        """
        if self._transport is None:
            failed: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            failed.set_exception(DeviceLost(f"worker process {self.pid} has ended"))
            return failed
        reply = self._expect(within_s)
        self._transport.write(json.dumps(message).encode() + b"\n")
        return reply

    async def rest(self) -> None:
        """Let the process finish its requests; kill it if it hangs."""
        if self._pending:
            await asyncio.wait([self._pending[-1][0]])

    async def leave(self, within_s: float) -> None:
        """Let the process finish its requests, and end; kill it if that takes longer than `within_s`."""
        self.leaving = True
        if self._transport is not None:
            self._transport.write_eof()
        await asyncio.wait([self.ended], timeout=within_s)
        self._process.kill()
        await self.ended

    def _expect(self, within_s: float) -> asyncio.Future[Reply]:
        """Return the future of the next reply; its timeout kills the process."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._pending.append((future, loop.call_later(within_s, self._process.kill)))
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by asyncio)."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Resolve the oldest pending request with each complete line (called by asyncio)."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            future, timer = self._pending.popleft()
            timer.cancel()
            if not future.done():
                future.set_result(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """Reap the process and fail its requests (called by asyncio).

        The kernel closes a dying process's sockets after it has freed its memory, so the wait here is
        short. Reaping in the event loop keeps the sum of CPU times consistent.
        """
        self._transport = None
        self._process.kill()
        status = self._process.wait()
        self.ended.set_result(None)
        for future, timer in self._pending:
            timer.cancel()
            if not future.done():
                future.set_exception(
                    DeviceLost(f"worker process {self.pid} ended with status {status}")
                )
                future.exception()  # Retrieved, so that asyncio reports no unhandled error.
        self._pending.clear()
        self._slab.close()
        self._on_end(self)


async def launch(recipe: Recipe, allocator: str, on_end: Callable[[Instance], None]) -> Instance:
    """Start a worker process with an allocator; await its `ready` before the first message.

    Raises:
        ActuationError: the system refuses another process.
    """
    ours, theirs = socket.socketpair()
    slab = Slab(recipe.model, recipe.items)
    command = [sys.executable, "-m", "agents.workloads.reference.worker"]
    files = {"--fd": theirs.fileno(), "--slab": slab.file}
    about = {"--items": recipe.items, "--seed": recipe.seed, "--width": recipe.width}
    options: dict[str, object] = {**files, **about, "--model": recipe.model.text()}
    command += [str(word) for option in options.items() for word in option]
    if allocator == GLIBC_KEEP:
        command.append("--keep-memory")
    try:
        process = subprocess.Popen(
            command,
            pass_fds=list(files.values()),
            env={**SPIN, **os.environ, **allocators().get(allocator, {})},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
    except OSError as error:
        ours.close()
        slab.close()
        raise ActuationError(f"cannot start a worker process: {error.strerror}") from error
    finally:
        theirs.close()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    _, instance = await loop.create_unix_connection(
        lambda: Instance(process, slab, recipe.inputs, on_end), sock=ours
    )
    return instance
