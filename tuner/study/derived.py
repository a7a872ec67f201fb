"""Cache of values computed from a study and its trials, for agents that poll often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tuner.core import Study

T = TypeVar("T")


class Derived(Generic[T]):
    """Keep the latest value of each study; recompute it at another revision or after a new trial.

    Call `get` only if all trials have ended. `trials` is their number, read before that was checked.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int], T]] = {}

    def get(self, study: Study, trials: int, compute: Callable[[], T]) -> T:
        """Return the value at the study's revision and number of trials."""
        at, cached = (study.revision, trials), self._kept.get(study.id)
        if cached is None or cached[0] != at:
            cached = self._kept[study.id] = at, compute()
        return cached[1]

    def latest(self, study: str) -> T | None:
        """Return the last computed value; None before the first."""
        cached = self._kept.get(study)
        return None if cached is None else cached[1]
