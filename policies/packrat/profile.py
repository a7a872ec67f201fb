"""The profile: the time of one instance alone for a batch, by threads and batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import InvalidInput

Cell = tuple[int, int]
"""Threads and items of one instance."""


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """One instance alone: seconds per batch with their standard error, and joules per item."""

    latency_s: float
    stderr_s: float = 0.0
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Points by ⟨threads, items⟩; any point may be missing, and rows may have different batch sizes.

    `memory_bytes` is the memory of one instance of the model, None if unknown.

    Raises:
        InvalidInput: the profile is empty; threads or items are below 1; a latency, an energy or the memory
            is not finite and positive; or a standard error is negative or not finite.
    """

    points: Mapping[Cell, ProfilePoint]
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise InvalidInput("the profile is empty", hint="give at least one measured point")
        for (threads, items), point in self.points.items():
            where = f"the profile at {threads} threads, batch {items}"
            if threads < 1 or items < 1:
                raise InvalidInput(
                    f"{where}: threads and batch must be >= 1", hint="correct or remove the row"
                )
            _positive(f"{where}: latency_s", point.latency_s)
            if not (math.isfinite(point.stderr_s) and point.stderr_s >= 0.0):
                raise InvalidInput(
                    f"{where}: the standard error cannot be {point.stderr_s}",
                    hint="correct or remove the row",
                )
            if point.energy_j is not None:
                _positive(f"{where}: energy_j", point.energy_j)
        if self.memory_bytes is not None:
            _positive("the memory of an instance", self.memory_bytes)

    @property
    def threads(self) -> int:
        """The largest number of threads in the profile."""
        return max(threads for threads, _ in self.points)

    @property
    def batches(self) -> tuple[int, ...]:
        """The profiled batch sizes, for any number of threads, ascending."""
        return tuple(sorted({items for _, items in self.points}))

    def fat(self, threads: int, items: int) -> float | None:
        """Return the seconds of one instance with all `threads` and all `items`: Packrat's baseline.

        A batch size that was not profiled costs as much as the next larger one; None if no larger one was
        profiled.
        """
        cell = self.fat_cell(threads, items)
        return None if cell is None else self.points[cell].latency_s

    def fat_cell(self, threads: int, items: int) -> Cell | None:
        """Return the cell that `fat` uses; None if the profile has no such cell."""
        batches = [b for t, b in self.points if t == threads and b >= items]
        return (threads, min(batches)) if batches else None

    def single(self, threads: int, items: int) -> float | None:
        """Return the seconds of the fastest single instance on at most `threads`; None if no cell fits."""
        times = [self.fat(t, items) for t in {t for t, _ in self.points} if t <= threads]
        return min((s for s in times if s is not None), default=None)


def _positive(name: str, value: float) -> None:
    """Raise InvalidInput if a value is not finite and positive."""
    if not (math.isfinite(value) and value > 0.0):
        raise InvalidInput(
            f"{name} cannot be {value}; it must be finite and above zero",
            hint="correct or remove the row",
        )
