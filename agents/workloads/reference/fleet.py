"""The instances together: one queue of requests, batches, and changes of setting without a gap."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial

from agents.workloads.reference.instance import START_S, Instance, Reply, launch
from agents.workloads.reference.knobs import knob_space
from tuner.core import ActuationError, DeviceLost, Setting

LOG = logging.getLogger(__name__)

GATHER_S = 0.004
"""How long a request may wait for others to fill its batch."""
BATCH_S = 30.0
PLACE_S = 30.0
LEAVE_S = 30.0
CLOSE_S = 2.0
MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Unserved:
    """Why a request was not served."""

    code: str
    message: str


Answer = int | Unserved
Placement = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue; from `due` on it waits for no others."""

    image: int
    due: float
    answer: asyncio.Future[Answer]


class Fleet:
    """Worker processes, each pinned to cores of its own, behind one queue.

    A change of setting stops what is too much, re-pins what stays, starts what is missing, in this
    order, so that cores are never promised twice; requests go on being served meanwhile. An
    instance that dies fails its batch and is replaced.
    """

    def __init__(self, cores: tuple[int, ...], seed: int, width: int) -> None:
        self.space = knob_space(len(cores))
        self.setting: Setting = self.space.default
        self.items = 0
        self.failed = 0
        self._cores = cores
        self._seed = seed
        self._width = width
        self._serving: list[Instance] = []
        self._processes: set[Instance] = set()
        self._queue: deque[Waiting] = deque()
        self._wake: asyncio.TimerHandle | None = None
        self._changing = asyncio.Lock()
        self._repair: asyncio.Task[None] | None = None
        self._closing = False
        self._cpu_s = 0.0

    @property
    def pids(self) -> list[int]:
        """The processes of the workload: this one and every worker."""
        return [os.getpid(), *sorted(i.pid for i in self._processes)]

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process and all workers, ended ones too."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = sum(i.cpu_s() for i in self._processes)
        total = time.process_time() + ended.ru_utime + ended.ru_stime + running
        # A reaped process counts in microseconds, a running one in nanoseconds.
        self._cpu_s = max(self._cpu_s, total)
        return self._cpu_s

    async def start(self) -> None:
        """Bring up the default setting. Raises ActuationError where no worker starts."""
        async with self._changing:
            await self._reach(self.setting)

    async def change(self, asked: Setting) -> None:
        """Put knobs in force; those not named stay.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit; nothing was changed.
            ActuationError: it could not be reached; the former setting is restored first.
        """
        try:
            async with self._changing:
                wanted = {**self.setting, **asked}
                self.space.check(wanted)
                await self._reach(wanted)
        except ActuationError:
            await asyncio.wait([self._mended()], timeout=START_S)
            raise

    async def infer(self, image: int) -> Answer:
        """Return the image's label, or why there is none."""
        if not self._serving:
            self.failed += 1
            return Unserved("no_instance", "no instance is running; one is being started")
        if len(self._queue) >= MOST_WAITING:
            self.failed += 1
            return Unserved("overloaded", f"{MOST_WAITING} requests are waiting already")
        loop = asyncio.get_running_loop()
        waiting = Waiting(image, loop.time() + GATHER_S, loop.create_future())
        self._queue.append(waiting)
        self._dispatch()
        return await waiting.answer

    async def close(self) -> None:
        """End every worker, those that are just starting too."""
        self._closing = True
        if self._repair is not None:
            self._repair.cancel()
        self._refuse(Unserved("stopping", "the server is stopping"))
        self._serving.clear()
        await asyncio.gather(*(i.leave(CLOSE_S) for i in self._processes))

    def _dispatch(self) -> None:
        """Give full or overdue batches to idle instances."""
        loop = asyncio.get_running_loop()
        size = int(self.setting["batch_size"])
        while self._queue:
            instance = next((i for i in self._serving if i.idle), None)
            if instance is None:
                return
            due = self._queue[0].due
            if len(self._queue) < size and loop.time() < due:
                if self._wake is None:
                    self._wake = loop.call_at(due, self._woken)
                return
            batch = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
            reply = instance.ask({"images": [w.image for w in batch]}, BATCH_S)
            reply.add_done_callback(partial(self._answer, batch))

    def _woken(self) -> None:
        self._wake = None
        self._dispatch()

    def _answer(self, batch: list[Waiting], reply: asyncio.Future[Reply]) -> None:
        """Hand a batch's labels, or its instance's end, to those who wait."""
        error = reply.exception()
        if error is None:
            self.items += len(batch)
            answers: list[Answer] = list(reply.result()["labels"])
        else:
            self.failed += len(batch)
            answers = [Unserved("instance_died", str(error))] * len(batch)
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)
        self._dispatch()

    def _refuse(self, why: Unserved) -> None:
        """Answer everything that waits with a refusal."""
        self.failed += len(self._queue)
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                waiting.answer.set_result(why)

    async def _reach(self, wanted: Setting) -> None:
        """Make the instances what the setting says, and note it as in force."""
        count, threads = int(wanted["instances"]), int(wanted["threads"])
        batch_size = int(wanted["batch_size"])
        placements: list[Placement] = [
            (self._cores[k * threads : (k + 1) * threads], threads) for k in range(count)
        ]
        while len(self._serving) > count:
            await self._serving.pop().leave(LEAVE_S)
        staying = list(zip(self._serving, placements, strict=False))
        await _all(*(_place(i, p, batch_size) for i, p in staying if i.placed != p))
        missing = placements[len(staying) :]
        await _all(*(self._launch(p, batch_size) for p in missing))
        if len(self._serving) != count:
            raise DeviceLost("a worker process ended during the change", hint="ask again")
        self.setting = wanted
        self._dispatch()

    async def _launch(self, placement: Placement, batch_size: int) -> None:
        """Start an instance and let it serve once it is pinned and warm."""
        instance = await launch(self._seed, self._width, self._ended)
        self._processes.add(instance)
        try:
            await instance.ready
            await _place(instance, placement, batch_size)
        except ActuationError:
            await instance.leave(LEAVE_S)
            raise
        self._serving.append(instance)

    def _ended(self, instance: Instance) -> None:
        """Note that a worker process has ended, and replace it where it was not meant to."""
        self._processes.discard(instance)
        if instance in self._serving:
            self._serving.remove(instance)
        if self._closing or instance.leaving:
            return
        LOG.error("worker process %d ended unexpectedly; replacing it", instance.pid)
        if not self._serving:
            self._refuse(Unserved("no_instance", "no instance is left; one is being started"))
        self._mended()

    def _mended(self) -> asyncio.Task[None]:
        """Return the task that restores the setting in force, started if need be."""
        if self._repair is None or self._repair.done():
            self._repair = asyncio.create_task(self._mend())
        return self._repair

    async def _mend(self) -> None:
        """Bring the fleet back to the setting in force, trying until it works."""
        pause_s = 0.1
        while True:
            try:
                async with self._changing:
                    await self._reach(self.setting)
                return
            except ActuationError as error:
                LOG.error("no replacement yet: %s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, 5.0)


async def _place(instance: Instance, placement: Placement, batch_size: int) -> None:
    """Pin an instance, set its threads, and check that both are in force."""
    cores, threads = placement
    asked = {"cores": cores, "threads": threads, "batch_size": batch_size}
    reply = await instance.ask(asked, PLACE_S)
    if reply != {"cores": sorted(cores), "threads": threads}:
        raise ActuationError(f"worker process {instance.pid} is at {reply}, not at {asked}")
    instance.placed = placement


async def _all(*steps: Coroutine[None, None, None]) -> None:
    """Do the steps at once and see each to its end; then raise the first error there was."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if result is not None:
            raise result
