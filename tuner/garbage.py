"""Keeps the garbage collector off what was loaded: modules and their like, which stay anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 100
"""How many times more seldom than usual all that was made since is looked through: among the requests of
10,000 waiting agents that stops every thread for 2 s. What is young is collected as ever."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector off all that is in memory by now, within the block.

    To look through modules and their like stops every thread for 20 ms in a small server, for 65 ms in a
    tuner and for 100 ms in an agent: at 400 requests a second that alone breaks a p99. What is made later
    is still collected.
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
    """Keep it off what was loaded since, within an `uncollected` block; elsewhere do nothing."""
    if gc.get_freeze_count():
        gc.collect()
        gc.freeze()
