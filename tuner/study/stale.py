"""Retries when another tuner on the same database has changed a study meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from tuner.core import StaleRevision

MOST_LOOKS = 6

P = ParamSpec("P")
R = TypeVar("R")


def looking_again(act: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it restarts if the study was changed since it was read.

    For functions that read the study themselves and may run twice. Raises StaleRevision after six
    attempts.
    """

    @functools.wraps(act)
    def again(*args: P.args, **named: P.kwargs) -> R:
        for _ in range(MOST_LOOKS - 1):
            with suppress(StaleRevision):
                return act(*args, **named)
        return act(*args, **named)

    return again
