"""Runs the same thing in several threads that start together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(action: Callable[[int], T], threads: int = 8) -> list[T]:
    """Return the results of `action(0)`, `action(1)` …; raise the error of one that fails."""
    barrier = threading.Barrier(threads)

    def run(index: int) -> T:
        barrier.wait(timeout=30)
        return action(index)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))
