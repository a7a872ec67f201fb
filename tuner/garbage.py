"""Exclude loaded modules and other permanent objects from garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 100
"""The factor by which collections of the oldest generation become rarer: with the requests of 10,000
waiting agents one stops every thread for 2 s. Young objects are collected as usual."""


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
