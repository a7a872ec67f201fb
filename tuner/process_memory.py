"""The memory of a process: objects exempt from garbage collection, and freed memory kept or given back.

A forward pass frees its activations, and the next pass needs as much again. glibc returns large blocks to
the system at once and requests them again, zeroed page by page. On two cores this took a third to a half of
the time of a batch (docs/figures.md). Packrat's authors measured with tcmalloc for this reason.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

ARENAS = 2
"""The number of heaps that all threads share. glibc's default is eight per core, and each keeps the memory
that its threads freed: nine studies at once took 2.7 GB, and 1.8 GB with two heaps, at the same speed."""
MOST_KEPT_BYTES = 1 << 30
"""The most freed memory that is kept at the end of the heap; the rest goes back at once. The largest batch
of our models frees half as much."""
STEP_BYTES = 64 << 20
"""The heap grows by this much beyond a request, so that a slightly larger pass causes no page faults."""
LARGEST_PIECE_BYTES = 1 << 30
"""Larger blocks are mapped separately. By default this applies at first to all blocks above 128 KiB."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -3, -4, -8
"""Source: malloc.h of glibc."""
EVERY_ARENA = 4096
"""MALLCTL_ARENAS_ALL. Source: jemalloc(3)."""
SELDOM = 100
"""The factor by which collections of the oldest generation become rarer: with the requests of 10,000
waiting agents one stops every thread for 2 s. Young objects are collected as usual."""


def share() -> None:
    """Let all threads share a few heaps, if the C library is glibc. To be called before they start.

    Source: mallopt(3).
    """
    if (limit := _function("mallopt")) is not None:
        limit(M_ARENA_MAX, ARENAS)


def keep() -> bool:
    """Keep freed memory for the next pass, up to a bound, and return whether this is in force.

    To be called before the first tensor is made. False if the C library is not glibc. glibc 2.34 and older
    refuse a threshold above 32 MiB; then no block is mapped separately instead.

    Source: mallopt(3).
    """
    limit = _function("mallopt")
    if limit is None:
        return False
    return bool(
        (limit(M_MMAP_THRESHOLD, LARGEST_PIECE_BYTES) or limit(M_MMAP_MAX, 0))
        and limit(M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
        and limit(M_TOP_PAD, STEP_BYTES)
    )


def trim() -> None:
    """Return freed memory of glibc, and of a preloaded tcmalloc or jemalloc, to the system.

    Source: malloc_trim(3); malloc_extension_c.h of gperftools; jemalloc(3), `arena.<i>.purge`.
    """
    if (give_back := _function("malloc_trim")) is not None:
        give_back(0)
    if (release := _function("MallocExtension_ReleaseFreeMemory")) is not None:
        release()
    if (control := _function("mallctl")) is not None:
        control(b"arena.%d.purge" % EVERY_ARENA, None, None, None, ctypes.c_size_t(0))


def _function(name: str) -> ctypes._NamedFuncPointer | None:
    """Return a function of the libraries that this process has loaded; None if none has it."""
    return getattr(ctypes.CDLL(None), name, None)


@contextmanager
def uncollected() -> Iterator[None]:
    """Exclude all present objects from garbage collection, within the block.

    A scan of modules and the like stops every thread for 20 ms in a small server, for 65 ms in a tuner and
    for 100 ms in an agent: at 400 requests a second this alone breaks a limit on a p99. Objects made later
    are still collected.
    """
    young, middle, old = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, middle, old * SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        gc.unfreeze()


def leave_alone_too() -> None:
    """Exclude objects loaded since, too, within an `uncollected` block; do nothing outside of one."""
    if gc.get_freeze_count():
        gc.collect()
        gc.freeze()
