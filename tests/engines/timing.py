"""Time a batch that is split among instances as Packrat does it: all run at once, the slowest counts.

The server's frontend and queue are left out, so that only the packings are compared.
"""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from agents.workloads.reference.instance import Instance, Placement, Recipe, launch
from tests.bench.turns import TimedBatches
from tuner.core import InvalidInput

LEAST_BATCHES = 4
"""The least number of batches in a window, even if they take longer than its seconds."""
CLOSE_S = 2.0
QUIET_MOST_S = 0.05
"""The wait before a window in which the spinning threads of the previous one go to sleep."""

Shape = tuple[int, int]
"""Threads and items of one instance."""


class Timer:
    """Times packings of one model; each instance's process is kept and used again.

    `stat` is the path of `/proc/stat`.

    Raises:
        InvalidInput: a packing needs more cores than the timer has.
        ActuationError: an instance does not start, or ends.
    """

    def __init__(self, recipe: Recipe, cores: Sequence[int], stat: Path) -> None:
        self._recipe = recipe
        self._cores = tuple(cores)
        self._stat = stat
        self._runner = asyncio.Runner()
        self._instances: dict[Placement, Instance] = {}
        self._warm: dict[Placement, set[int]] = {}

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def window(self, shapes: Sequence[Shape], seconds: float, allocator: str) -> TimedBatches:
        """Time batches split into these shapes, for at least `seconds` and `LEAST_BATCHES` batches."""
        return self._runner.run(self._window(shapes, seconds, allocator))

    def own_bytes(self, allocator: str) -> int:
        """Return the memory of an allocator's largest instance, in bytes; 0 before an instance starts."""
        own = (i.own_bytes() for at, i in self._instances.items() if at.allocator == allocator)
        return max(own, default=0)

    async def _window(
        self, shapes: Sequence[Shape], seconds: float, allocator: str
    ) -> TimedBatches:
        """Time instances of these shapes side by side. Raises InvalidInput: the cores do not suffice."""
        parts: list[tuple[Instance, range]] = []
        used = first = 0
        for threads, items in shapes:
            cores = self._cores[used : used + threads]
            if len(cores) < threads:
                raise InvalidInput(
                    f"{list(shapes)} need more than {len(self._cores)} cores",
                    hint="choose fewer threads",
                )
            instance = await self._instance(Placement(cores, threads, allocator), items)
            parts.append((instance, range(first, first + items)))
            used, first = used + threads, first + items
        await asyncio.sleep(QUIET_MOST_S)
        busy_s, own_s, began = self._busy_s(), self._own_s(), time.perf_counter()
        durations_s: list[float] = []
        while len(durations_s) < LEAST_BATCHES or time.perf_counter() - began < seconds:
            started = time.perf_counter()
            await asyncio.gather(*(instance.run(items) for instance, items in parts))
            durations_s.append(time.perf_counter() - started)
        spent = time.perf_counter() - began
        foreign_s = (self._busy_s() - busy_s) - (self._own_s() - own_s)
        stderr = statistics.stdev(durations_s) / math.sqrt(len(durations_s))
        share = max(0.0, foreign_s) / (spent * (os.cpu_count() or 1))
        return TimedBatches(statistics.fmean(durations_s), stderr, share)

    async def _instance(self, placement: Placement, items: int) -> Instance:
        """Return the instance of a placement, started and warmed up for `items` if necessary."""
        if placement not in self._instances:
            instance = await launch(self._recipe, placement.allocator, lambda ended: None)
            self._instances[placement] = instance
            self._warm[placement] = set()
            await instance.ready
        instance = self._instances[placement]
        if items not in self._warm[placement]:
            await instance.place(placement, items)
            self._warm[placement].add(items)
        return instance

    def _own_s(self) -> float:
        """Return the CPU seconds of this process and the instances so far."""
        return time.process_time() + sum(i.cpu_s() for i in self._instances.values())

    def _busy_s(self) -> float:
        """Return the machine's busy core seconds so far, stolen time included."""
        fields = [int(x) for x in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        idle = fields[3] + fields[4]
        return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")

    async def _close(self) -> None:
        """End all instances."""
        await asyncio.gather(*(i.leave(CLOSE_S) for i in self._instances.values()))
