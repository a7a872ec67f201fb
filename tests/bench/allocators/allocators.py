"""The gain of the memory allocator alone: one instance on all cores, by allocator, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agents.workloads.reference.allocators import GLIBC, allocators
from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.instance import Recipe
from agents.workloads.reference.slab import inputs
from tests.bench.turns import PROVEN, QuietTimer, TimedBatches, gain_of, in_turns, mean_of
from tests.engines.timing import Timer
from tuner.core import InvalidInput

Arm = tuple[str, int]
"""An allocator and a batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorGain:
    """One allocator against glibc's default, for one model and batch size.

    `speedup` is the geometric mean of the pairs' ratios. The bytes are the private memory of the
    process after its windows; there is one process per allocator, which has run the smaller batches
    before.
    """

    model: str
    batch: int
    allocator: str
    glibc_latency_s: float
    latency_s: float
    speedup: float
    speedup_stderr: float
    glibc_bytes: int
    own_bytes: int
    foreign: float

    @property
    def is_slower(self) -> bool:
        """Whether the allocator was slower than glibc beyond noise."""
        return self.speedup + PROVEN * self.speedup_stderr < 1.0


def compare_allocators(
    which: Model,
    batches: Sequence[int],
    turns: int,
    seconds: float,
    most_foreign: float,
    cores: Sequence[int],
    report: Callable[[str], None],
) -> Iterator[AllocatorGain]:
    """Yield the comparison of each available allocator with glibc, batch by batch.

    Raises:
        InvalidInput: there is no other allocator than the C library's.
        ActuationError: an instance could not be started.
    """
    others = [allocator for allocator in allocators() if allocator != GLIBC]
    if not others:
        raise InvalidInput(
            "no other allocator is at hand",
            hint="run it on glibc, and unset LD_PRELOAD and the variables with MALLOC_ in their names",
        )
    recipe = Recipe(which, 0, which.width, inputs(which, 0), max(batches))
    with Timer(recipe, cores, Path("/proc/stat")) as timer:

        def window(arm: Arm) -> TimedBatches:
            return timer.window([(len(cores), arm[1])], seconds, arm[0])

        timed = QuietTimer(window, most_foreign)
        for batch in sorted(batches):
            for other in others:
                report(f"{which.name}: batch {batch}, {other}")
                pairs = in_turns(
                    partial(timed, (GLIBC, batch)), partial(timed, (other, batch)), turns
                )
                gain = gain_of(pairs)
                glibc, shown = (mean_of(windows) for windows in zip(*pairs, strict=True))
                yield AllocatorGain(
                    model=which.name,
                    batch=batch,
                    allocator=other,
                    glibc_latency_s=glibc.latency_s,
                    latency_s=shown.latency_s,
                    speedup=gain.speedup,
                    speedup_stderr=gain.stderr,
                    glibc_bytes=timer.own_bytes(GLIBC),
                    own_bytes=timer.own_bytes(other),
                    foreign=max(glibc.foreign, shown.foreign),
                )
