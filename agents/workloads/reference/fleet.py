"""The instances of a server, and changes of their setting without a gap in service.

Reconfiguration is Packrat's active–passive one (arXiv 2311.18174): the new instances start and warm
up beside the old ones, then the traffic is switched, then the old ones finish their requests and
end. While both exist they share the cores. The duration, and its effect on the requests answered
meanwhile, is reported as a `Switch`.

Ours: an instance whose place does not change stays in service; loading runs at a lower priority
than serving (`worker.LOADING_NICE`); an old instance is kept as a spare, with torch and the model
loaded: pinned again it becomes a new instance of a later change, within milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.workloads.reference.batcher import Answer, Batcher, Unserved
from agents.workloads.reference.instance import Instance, Placement, Recipe, launch
from agents.workloads.reference.knobs import knob_space
from agents.workloads.reference.memory import available_bytes, refuse_too_much
from tuner.core import ActuationError, DeviceLost, OutOfRange, Setting, quantile_estimate

LOG = logging.getLogger(__name__)

CLOSE_S = 2.0
SPARE_MEMORY = 0.25
"""Share of the remaining memory that spares may use; there are never more of them than cores."""
TORCH_BYTES = 150 << 20
"""Approximate own memory of a worker for torch itself, used until one can be measured."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of the instances under traffic; durations in s.

    During `starting_s` the new instances loaded (unless spares did) and warmed up while the old
    ones served. During `draining_s` the old ones finished while the new ones served. Both shared
    the cores all that time. `items` were answered meanwhile, 99 % of them within `latency_p99_ms`
    of their arrival (None without any), and `failed` were not.
    """

    setting: Setting
    starting_s: float
    draining_s: float
    items: int
    failed: int
    latency_p99_ms: float | None


class Fleet:
    """Worker processes, each pinned to separate cores, behind one queue.

    If an instance dies, another one takes over its batch, and the instance is replaced.
    """

    def __init__(
        self,
        cores: tuple[int, ...],
        recipe: Recipe,
        allocators: Sequence[str] = (),
        available: Callable[[], int | None] = available_bytes,
        breaks: tuple[float, ...] = (),
    ) -> None:
        self.space = knob_space(len(cores), allocators, breaks)
        self.setting: Setting = self.space.default
        self.batcher = Batcher()
        self.switches = 0
        self.last_switch: Switch | None = None
        self._cores = cores
        self._recipe = recipe
        self._available = available
        self._processes: set[Instance] = set()
        self._spares: list[Instance] = []
        self._changing = asyncio.Lock()
        self._repair: asyncio.Task[None] | None = None
        self._closing = False
        self._cpu_s = 0.0

    @property
    def pids(self) -> list[int]:
        """The processes of the workload: this one and every worker."""
        return [os.getpid(), *sorted(i.pid for i in self._processes)]

    @property
    def resident_bytes(self) -> int:
        """The workers' own memory in bytes, spares included."""
        return sum(i.own_bytes() for i in self._processes)

    @property
    def spare_pids(self) -> list[int]:
        """The loaded workers that wait for the next change."""
        return sorted(i.pid for i in self._spares)

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process and all workers, ended ones too."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = sum(i.cpu_s() for i in self._processes)
        total = time.process_time() + ended.ru_utime + ended.ru_stime + running
        # A reaped process counts in microseconds, a running one in nanoseconds.
        self._cpu_s = max(self._cpu_s, total)
        return self._cpu_s

    async def start(self) -> None:
        """Start the default setting.

        Raises:
            OutOfRange: the model does not fit in memory; nothing was started.
            ActuationError: no worker starts.
        """
        async with self._changing:
            await self._make_room(self.setting)
            await self._reach(self.setting)

    async def change(self, changes: Setting) -> Switch | None:
        """Put knobs in force; those not named stay.

        Returns the switch; None if no instance changed.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit the cores or the memory; nothing was
                started.
            ActuationError: it could not be reached; the former instances served all the time.
        """
        async with self._changing:
            requested = {**self.setting, **changes}
            self.space.check(requested)
            await self._make_room(requested)
            batcher = self.batcher
            failed = batcher.failed
            with batcher.listening() as latencies_s:
                times = await self._reach(requested)
            if times is None:
                return None
            switch = Switch(
                requested, *times, len(latencies_s), batcher.failed - failed, _p99_ms(latencies_s)
            )
            self.switches += 1
            self.last_switch = switch
            LOG.info("event=switched %s", switch)
            return switch

    async def infer(self, item: int) -> Answer:
        """Return the item's label, or the reason why it was not served."""
        return await self.batcher.infer(item)

    async def close(self) -> None:
        """End every worker, including those that are starting."""
        self._closing = True
        if self._repair is not None:
            self._repair.cancel()
        self.batcher.refuse(Unserved("stopping", "the server is stopping"))
        self.batcher.instances.clear()
        await asyncio.gather(*(i.leave(CLOSE_S) for i in self._processes))

    async def _reach(self, requested: Setting) -> tuple[float, float] | None:
        """Bring the instances to the setting, and note it as in force.

        Returns the time in s until the traffic was switched, and from then until the old instances had
        ended; None if every instance stayed.
        """
        began = time.monotonic()
        batch_size = int(requested["batch_size"])
        staying, missing = _kept(self.batcher.instances, _placements(self._cores, requested))
        new = await self._start(missing, batch_size)
        staying = [i for i in staying if i in self._processes]
        old = [i for i in self.batcher.instances if i not in staying]
        self.setting = requested
        self.batcher.serve_with([*staying, *new], batch_size)
        if not new and not old:
            return None
        switched = time.monotonic()
        await asyncio.gather(*(self._retire(i) for i in old))
        return switched - began, time.monotonic() - switched

    async def _start(self, placements: Sequence[Placement], batch_size: int) -> list[Instance]:
        """Start new instances, pinned and warm.

        Raises:
            ActuationError: one of them failed to start; none of them serves.
        """
        outcomes = await asyncio.gather(
            *(self._launch(p, batch_size) for p in placements), return_exceptions=True
        )
        started = [o for o in outcomes if not isinstance(o, BaseException)]
        errors = [o for o in outcomes if isinstance(o, BaseException)]
        if not errors and any(i not in self._processes for i in started):
            errors = [DeviceLost("a new worker process ended before it was ready", hint="retry")]
        if errors:
            await asyncio.gather(*(self._retire(i) for i in started))
            raise errors[0]
        return started

    async def _launch(self, placement: Placement, batch_size: int) -> Instance:
        """Return a warm instance at a place: a spare, or a new process if no spare fits."""
        while fit := self._fit_spares(placement):
            spare = next((i for i in fit if i.placed == placement), fit[-1])
            self._spares.remove(spare)
            try:
                await spare.place(placement, batch_size)
                return spare
            except ActuationError as error:
                LOG.warning("event=spare_lost pid=%d why=%r", spare.pid, str(error))
                await spare.leave(CLOSE_S)
        instance = await launch(self._recipe, placement.allocator, self._ended)
        self._processes.add(instance)
        try:
            await instance.ready
            await instance.place(placement, batch_size)
        except ActuationError:
            await instance.leave(CLOSE_S)
            raise
        return instance

    async def _retire(self, instance: Instance) -> None:
        """Let an instance finish its requests, and keep it as a spare, ending the oldest spares for it."""
        await instance.rest()
        if instance not in self._processes or self._closing:
            return
        self._spares.append(instance)
        while self._spares and not self._has_room():
            await self._spares.pop(0).leave(CLOSE_S)

    def _has_room(self) -> bool:
        """Return whether the spares fit their share of memory and the cores."""
        available = self._available()
        takes = sum(i.own_bytes() for i in self._spares)
        fits = available is None or takes <= SPARE_MEMORY * available
        return fits and len(self._spares) <= len(self._cores)

    def _fit_spares(self, like: Placement) -> list[Instance]:
        """Return the spares with the same allocator and number of threads.

        Others could be reconfigured, but are slower than a new process: on two cores, one that had
        served on one thread did 56 to 84 batches/s on two, against 94 to 108.
        """
        key = (like.threads, like.allocator)
        placed = [(i, i.placed) for i in self._spares if i.placed is not None]
        return [i for i, at in placed if (at.threads, at.allocator) == key]

    async def _make_room(self, requested: Setting) -> None:
        """Refuse a setting that needs more than the available memory, after ending other spares.

        Raises OutOfRange.
        """
        fit = self._fit_spares(_placements(self._cores, requested)[0])
        others = [i for i in self._spares if i not in fit]
        try:
            self._check_memory(requested, len(fit))
        except OutOfRange:
            if not others:
                raise
            await asyncio.gather(*(i.leave(CLOSE_S) for i in others))
            self._check_memory(requested, len(fit))

    def _check_memory(self, requested: Setting, spares: int) -> None:
        """Raise OutOfRange if the new instances do not fit in memory."""
        _, missing = _kept(self.batcher.instances, _placements(self._cores, requested))
        count = max(0, len(missing) - spares)
        recipe = self._recipe
        each = max((i.own_bytes() for i in self.batcher.instances), default=0)
        each = each or TORCH_BYTES + recipe.model.weight_bytes(recipe.width)
        refuse_too_much(recipe.model.name, count, each, self._available())

    def _ended(self, instance: Instance) -> None:
        """Note that a worker process has ended, and replace it if that was unexpected."""
        self._processes.discard(instance)
        self._spares = [i for i in self._spares if i is not instance]
        served = instance in self.batcher.instances
        if not self._closing and not instance.leaving:
            LOG.error("event=worker_ended pid=%d served=%s", instance.pid, served)
        self.batcher.lost(instance)
        if served and not self._closing and not instance.leaving:
            self._mended()

    def _mended(self) -> asyncio.Task[None]:
        """Return the task that restores the setting in force, starting it if needed."""
        if self._repair is None or self._repair.done():
            self._repair = asyncio.create_task(self._mend())
        return self._repair

    async def _mend(self) -> None:
        """Restore the setting in force, retrying until it works."""
        pause_s = 0.1
        while True:
            try:
                async with self._changing:
                    await self._reach(self.setting)
                return
            except ActuationError as error:
                LOG.error("event=no_replacement why=%r", str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, 5.0)


def _placements(cores: tuple[int, ...], requested: Setting) -> list[Placement]:
    """Return the cores of each instance; no core is used twice."""
    count, threads = int(requested["instances"]), int(requested["threads"])
    allocator = str(requested.get("allocator", ""))
    return [
        Placement(cores[k * threads : (k + 1) * threads], threads, allocator) for k in range(count)
    ]


def _kept(
    instances: Sequence[Instance], placements: Sequence[Placement]
) -> tuple[list[Instance], list[Placement]]:
    """Return the instances that are already at a requested place, and the remaining places."""
    by_place = {i.placed: i for i in instances if not i.leaving}
    staying = [by_place[p] for p in placements if p in by_place]
    return staying, [p for p in placements if p not in by_place]


def _p99_ms(latencies_s: Sequence[float]) -> float | None:
    """Return the 99th percentile in ms; None without latencies."""
    return 1000.0 * quantile_estimate(latencies_s, 0.99).mean if latencies_s else None
