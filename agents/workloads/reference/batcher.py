"""The front of the server: one queue, its batches, and their workers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from agents.workloads.reference.instance import Instance

LOG = logging.getLogger(__name__)

GATHER_S = 0.004
"""Time in s that a request may wait for others to fill its batch."""
MOST_WAITING = 1000
MOST_TRIES = 3
"""The number of workers that may end during one request before it is refused, as it may be the cause."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """The reason why a request was not served."""

    code: str
    message: str


Answer = int | Unserved


@dataclass(slots=True)
class Waiting:
    """A request in the queue; after `due` it does not wait for others."""

    item: int
    came_at: float
    answer: asyncio.Future[Answer]
    tries: int = 0

    @property
    def due(self) -> float:
        """The time at which it is sent even alone."""
        return self.came_at + GATHER_S


class Batcher:
    """Assign full or overdue batches to idle instances, and a dead one's batch to another.

    The totals never decrease. `in_flight_s` is the integral over time of the number of requests in
    the server, so that its growth per second is their mean number.
    """

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self.batch_size = 1
        self.arrived = 0
        self.items = 0
        self.failed = 0
        self.batches = 0
        self._queue: deque[Waiting] = deque()
        self._wake: asyncio.TimerHandle | None = None
        self._watched: list[tuple[int, asyncio.Future[None]]] = []
        self.inside = 0
        """The number of requests in the server, waiting or being served."""
        self._in_flight_s = 0.0
        self._counted_at: float | None = None
        self._listening: list[list[float]] = []

    @property
    def queued(self) -> int:
        """The number of requests that wait for an instance."""
        return len(self._queue)

    async def crowded(self, count: int, within_s: float) -> None:
        """Return once `count` requests are in the server, or after `within_s`."""
        if self.inside >= count:
            return
        watch = (count, asyncio.get_running_loop().create_future())
        self._watched.append(watch)
        try:
            await asyncio.wait([watch[1]], timeout=within_s)
        finally:
            self._watched.remove(watch)

    @property
    def in_flight_s(self) -> float:
        """The request-seconds spent in the server so far."""
        self._count(0)
        return self._in_flight_s

    async def infer(self, item: int) -> Answer:
        """Return an item's label, or the reason why it was not served."""
        self.arrived += 1
        if not self.instances:
            self.failed += 1
            return Unserved("no_instance", "no instance is running; one is starting")
        if len(self._queue) >= MOST_WAITING:
            self.failed += 1
            return Unserved("overloaded", f"{MOST_WAITING} requests are already waiting")
        loop = asyncio.get_running_loop()
        waiting = Waiting(item, loop.time(), loop.create_future())
        self._queue.append(waiting)
        self._count(1)
        try:
            self._dispatch()
            return await waiting.answer
        finally:
            self._count(-1)

    def serve_with(self, instances: Sequence[Instance], batch_size: int) -> None:
        """Send all further batches to these instances; others finish the batches that they have."""
        self.instances = list(instances)
        self.batch_size = batch_size
        self._dispatch()

    def lost(self, instance: Instance) -> None:
        """Send nothing more to an instance that has ended."""
        if instance in self.instances:
            self.instances.remove(instance)
            if not self.instances:
                self.refuse(Unserved("no_instance", "no instance is left; one is starting"))

    def refuse(self, why: Unserved) -> None:
        """Refuse all waiting requests."""
        while self._queue:
            self._refuse_one(self._queue.popleft(), why)

    @contextmanager
    def listening(self) -> Iterator[list[float]]:
        """Collect the seconds from arrival to answer of the requests answered within the block."""
        latencies_s: list[float] = []
        self._listening.append(latencies_s)
        try:
            yield latencies_s
        finally:
            self._listening = [each for each in self._listening if each is not latencies_s]

    def _dispatch(self) -> None:
        """Give full or overdue batches to idle instances."""
        loop = asyncio.get_running_loop()
        size = self.batch_size
        while self._queue:
            instance = next((i for i in self.instances if i.idle), None)
            if instance is None:
                return
            due = self._queue[0].due
            if len(self._queue) < size and loop.time() < due:
                if self._wake is None:
                    self._wake = loop.call_at(due, self._woken)
                return
            batch = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
            labels = instance.run([w.item for w in batch])
            labels.add_done_callback(partial(self._answered, batch))

    def _woken(self) -> None:
        """Dispatch the batch whose time has come."""
        self._wake = None
        self._dispatch()

    def _answered(self, batch: list[Waiting], labels: asyncio.Future[list[int]]) -> None:
        """Pass a batch's labels to its callers, or send the batch to another instance."""
        error = labels.exception()
        if error is not None:
            self._again(batch, error)
        else:
            now = asyncio.get_running_loop().time()
            self.items += len(batch)
            self.batches += 1
            for waiting, label in zip(batch, labels.result(), strict=True):
                for latencies_s in self._listening:
                    latencies_s.append(now - waiting.came_at)
                if not waiting.answer.done():
                    waiting.answer.set_result(label)
        self._dispatch()

    def _again(self, batch: list[Waiting], error: BaseException) -> None:
        """Put a batch whose instance ended back at the front of the queue, as inference is idempotent."""
        for waiting in reversed(batch):
            waiting.tries += 1
            if self.instances and waiting.tries < MOST_TRIES:
                self._queue.appendleft(waiting)
            else:
                self._refuse_one(waiting, Unserved("instance_died", str(error)))

    def _refuse_one(self, waiting: Waiting, why: Unserved) -> None:
        """Count and answer a request as failed."""
        self.failed += 1
        if not waiting.answer.done():
            waiting.answer.set_result(why)

    def _count(self, more: int) -> None:
        """Advance the integral to now, then add `more` requests."""
        now = asyncio.get_running_loop().time()
        if self._counted_at is not None:
            self._in_flight_s += self.inside * (now - self._counted_at)
        self._counted_at = now
        self.inside += more
        for count, waiter in self._watched:
            if self.inside >= count and not waiter.done():
                waiter.set_result(None)
