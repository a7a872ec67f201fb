"""What becomes of freed memory in a process whose threads take turns at large pieces of work."""

import ctypes

ARENAS = 2
"""So many heaps share the threads. glibc's default is eight a core, and each keeps what its threads
have freed: nine studies at once took 2.7 GB, and 1.8 with two heaps, at the same speed."""
M_ARENA_MAX = -8
"""Source: malloc.h of glibc."""


def share() -> None:
    """Have threads share a few heaps, where the C library is glibc. To be called before they start.

    Source: mallopt(3).
    """
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit is not None:
        limit(M_ARENA_MAX, ARENAS)


def trim() -> None:
    """Give freed memory back to the system, where the C library is glibc; others keep little.

    Source: malloc_trim(3).
    """
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
