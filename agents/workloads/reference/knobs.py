"""The knobs of the reference server and the combinations that fit the machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tuner.core import Cost, Knob, Part, Role, Setting, Space

BATCH_SIZES = (1, 2, 4, 8, 16)


def knob_space(cores: int, allocators: Sequence[str] = (), breaks: tuple[float, ...] = ()) -> Space:
    """Return the space for a number of cores; the default is one instance on all, batch 1.

    Instances and threads are the powers of two up to the cores, and the cores themselves. Only
    combinations that do not oversubscribe the cores are allowed: two busy OpenMP threads on one
    core wait for each other at every barrier. Of several memory allocators the first is the default.
    `breaks` are those of the threads of one instance.
    """
    counts = tuple(sorted({2**k for k in range(cores.bit_length())} | {cores}))
    # A change of either starts new instances, which load torch while the old ones serve, unless spares
    # fit.
    knobs = [
        Knob("instances", counts, 1, Part.WORKLOAD, Cost(seconds=3.0), Role.PARALLEL),
        Knob(
            "threads", counts, cores, Part.WORKLOAD, Cost(seconds=3.0), Role.PARALLEL, breaks=breaks
        ),
        Knob("batch_size", BATCH_SIZES, 1, Part.WORKLOAD, role=Role.BATCH),
    ]
    if len(allocators) > 1:
        values = tuple(allocators)
        knobs.append(Knob("allocator", values, values[0], Part.WORKLOAD, Cost(seconds=3.0)))
    names = [knob.name for knob in knobs]
    every: list[Setting] = [
        dict(zip(names, values, strict=True)) for values in product(*(k.values for k in knobs))
    ]
    only = (s for s in every if int(s["instances"]) * int(s["threads"]) <= cores)
    return Space(tuple(knobs), tuple(only))
