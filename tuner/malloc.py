"""What becomes of freed memory in a process: shared by few heaps, kept for the next pass, or given back.

A forward pass frees its activations, and the next one wants as much again. glibc gives large pieces back
to the system at once and takes them again, zeroed page by page: on two cores that was a third to a half
of the time of a batch (docs/figures.md). Packrat's authors measured with tcmalloc for that reason.
"""

import ctypes

ARENAS = 2
"""How many heaps share the threads. glibc's default is eight a core, and each keeps what its threads
have freed: nine studies at once took 2.7 GB, and 1.8 with two heaps, at the same speed."""
MOST_KEPT_BYTES = 1 << 30
"""Freed memory at the end of the heap beyond this goes back at once. The largest batch of our models
frees half as much."""
STEP_BYTES = 64 << 20
"""The heap grows by this much beyond a request, so that a pass that needs a little more is no fault."""
LARGEST_PIECE_BYTES = 1 << 30
"""Larger pieces are mapped by themselves, as all above 128 KiB are at first by default."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -3, -4, -8
"""Source: malloc.h of glibc."""
EVERY_ARENA = 4096
"""MALLCTL_ARENAS_ALL. Source: jemalloc(3)."""


def share() -> None:
    """Have threads share a few heaps, where the C library is glibc. To be called before they start.

    Source: mallopt(3).
    """
    if (limit := _function("mallopt")) is not None:
        limit(M_ARENA_MAX, ARENAS)


def keep() -> bool:
    """Keep freed memory for the next pass, up to a bound, and return whether that is in force.

    To be called before the first tensor. False where the C library is not glibc. A glibc that refuses so
    large a threshold (2.34 and older take 32 MiB at most) maps no piece by itself instead.

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
    """Give freed memory back to the system: glibc's, and that of a preloaded tcmalloc or jemalloc.

    Source: malloc_trim(3); malloc_extension_c.h of gperftools; jemalloc(3), `arena.<i>.purge`.
    """
    if (give_back := _function("malloc_trim")) is not None:
        give_back(0)
    if (release := _function("MallocExtension_ReleaseFreeMemory")) is not None:
        release()
    if (control := _function("mallctl")) is not None:
        control(b"arena.%d.purge" % EVERY_ARENA, None, None, None, ctypes.c_size_t(0))


def _function(name: str) -> "ctypes._NamedFuncPointer | None":
    """Return a function of the libraries that this process has loaded, None where there is none."""
    return getattr(ctypes.CDLL(None), name, None)
