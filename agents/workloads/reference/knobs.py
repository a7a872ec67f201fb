"""The knobs of the reference server and the combinations that fit the machine."""

from __future__ import annotations

from itertools import product

from tuner.core import Cost, Knob, Part, Role, Setting, Space

BATCH_SIZES = (1, 2, 4, 8, 16)


def knob_space(cores: int) -> Space:
    """Return the space for a number of cores; the default is one instance on all, batch 1.

    Instances and threads are the powers of two up to the cores, and the cores themselves. Only
    combinations that do not oversubscribe the cores are allowed: two busy OpenMP threads on one
    core wait for each other at every barrier.
    """
    counts = tuple(sorted({2**k for k in range(cores.bit_length())} | {cores}))
    # Both mean new instances, which load torch beside those that serve, unless spares have.
    knobs = (
        Knob("instances", counts, 1, Part.WORKLOAD, Cost(seconds=3.0), Role.PARALLEL),
        Knob("threads", counts, cores, Part.WORKLOAD, Cost(seconds=3.0), Role.PARALLEL),
        Knob("batch_size", BATCH_SIZES, 1, Part.WORKLOAD, role=Role.BATCH),
    )
    only: list[Setting] = [
        {"instances": instances, "threads": threads, "batch_size": batch_size}
        for instances, threads, batch_size in product(counts, counts, BATCH_SIZES)
        if instances * threads <= cores
    ]
    return Space(knobs, tuple(only))
