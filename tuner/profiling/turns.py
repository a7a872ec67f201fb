"""Windows of two things in turns on a machine that is never quite quiet, and what they say of both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

PROVEN = 2.0
"""Standard errors by which one must be faster than the other."""
TRIES = 4
"""How often a window that others disturbed is measured again before the quietest one is taken."""

ArmT = TypeVar("ArmT")


@dataclass(frozen=True, slots=True)
class TimedBatches:
    """One window: seconds of a batch with their standard error, and the share that others took."""

    latency_s: float
    stderr_s: float
    foreign: float


Pair = tuple[TimedBatches, TimedBatches]
"""A window of either, measured next to each other."""


@dataclass(slots=True)
class QuietTimer(Generic[ArmT]):
    """Measures windows and discards those with too much foreign load.

    After `TRIES` the quietest counts, and `disturbed` counts it: a machine that is never quiet is
    measured all the same, and reported.
    """

    window: Callable[[ArmT], TimedBatches]
    most_foreign: float
    rejected: int = 0
    disturbed: int = 0
    worst: float = 0.0

    def __call__(self, arm: ArmT) -> TimedBatches:
        """Return a window, of the given number of tries the first quiet or the quietest one."""
        timings: list[TimedBatches] = []
        while len(timings) < TRIES:
            shown = self.window(arm)
            timings.append(shown)
            if shown.foreign <= self.most_foreign:
                break
            self.rejected += 1
        best = min(timings, key=lambda s: s.foreign)
        if best.foreign > self.most_foreign:
            self.rejected -= 1
            self.disturbed += 1
        self.worst = max(self.worst, best.foreign)
        return best


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast one is as the other, with its standard error, by windows in turns."""

    speedup: float
    stderr: float

    @property
    def is_proven(self) -> bool:
        """Whether it is faster beyond noise."""
        return self.speedup - PROVEN * self.stderr > 1.0


def in_turns(
    one: Callable[[], TimedBatches],
    other: Callable[[], TimedBatches],
    turns: int,
    report: Callable[[int], None] = lambda turn: None,
) -> list[Pair]:
    """Return windows of both, in pairs, each first in its turn; `report` gets the turn."""
    pairs: list[Pair] = []
    for turn in range(turns):
        report(turn + 1)
        if turn % 2 == 0:
            first = one()
            pairs.append((first, other()))
        else:
            first = other()
            pairs.append((one(), first))
    return pairs


def mean_of(windows: Sequence[TimedBatches]) -> TimedBatches:
    """Return several windows as one; the standard error is the larger of theirs and their scatter's."""
    count = len(windows)
    inner = math.hypot(*(w.stderr_s for w in windows)) / count
    scatter = (
        statistics.stdev(w.latency_s for w in windows) / math.sqrt(count) if count > 1 else 0.0
    )
    mean = statistics.fmean(w.latency_s for w in windows)
    return TimedBatches(mean, max(inner, scatter), max(w.foreign for w in windows))


def gain_of(pairs: Sequence[Pair]) -> Gain:
    """Return how many times as fast the second ones were."""
    logs = [math.log(one.latency_s / other.latency_s) for one, other in pairs]
    inner = math.sqrt(
        math.fsum((w.stderr_s / w.latency_s) ** 2 for pair in pairs for w in pair)
    ) / len(pairs)
    scatter = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    speedup = math.exp(statistics.fmean(logs))
    return Gain(speedup, speedup * max(inner, scatter))
