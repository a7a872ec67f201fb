"""Compare two configurations by alternating windows, on a machine on which other processes run, too."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

PROVEN = 2.0
"""The number of standard errors by which a speed-up must exceed 1 to be proven."""
TRIES = 4
"""The number of windows measured, if other processes disturb each, before the quietest is taken."""

ArmT = TypeVar("ArmT")


@dataclass(frozen=True, slots=True)
class TimedBatches:
    """One window: mean seconds of a batch, their standard error, and other processes' share of the CPU."""

    latency_s: float
    stderr_s: float
    foreign: float


Pair = tuple[TimedBatches, TimedBatches]
"""A window of each configuration, measured one right after the other."""


@dataclass(slots=True)
class QuietTimer(Generic[ArmT]):
    """Measures windows and discards those in which other processes use more than `most_foreign` of the CPU.

    If all `TRIES` windows are disturbed, the quietest is used and counted in `disturbed`, so that a busy
    machine can still be measured and the report shows it. `rejected` counts the discarded windows, `worst`
    is the largest foreign share among those used.
    """

    window: Callable[[ArmT], TimedBatches]
    most_foreign: float
    rejected: int = 0
    disturbed: int = 0
    worst: float = 0.0

    def __call__(self, arm: ArmT) -> TimedBatches:
        """Return the first quiet window of at most `TRIES`, else the quietest of them."""
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
    """The speed-up of one configuration over another by alternating windows, with its standard error."""

    speedup: float
    stderr: float

    @property
    def is_proven(self) -> bool:
        """Whether the speed-up exceeds 1 by more than `PROVEN` standard errors."""
        return self.speedup - PROVEN * self.stderr > 1.0


def in_turns(
    one: Callable[[], TimedBatches],
    other: Callable[[], TimedBatches],
    turns: int,
    report: Callable[[int], None] = lambda turn: None,
) -> list[Pair]:
    """Return pairs of windows of both configurations; which is measured first alternates.

    `report` is called with the number of each turn, from 1.
    """
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
    """Return the mean of several windows.

    Its standard error is the larger of that from the windows' own errors and that from their scatter;
    its foreign share is the largest of theirs.
    """
    count = len(windows)
    inner = math.hypot(*(w.stderr_s for w in windows)) / count
    scatter = (
        statistics.stdev(w.latency_s for w in windows) / math.sqrt(count) if count > 1 else 0.0
    )
    mean = statistics.fmean(w.latency_s for w in windows)
    return TimedBatches(mean, max(inner, scatter), max(w.foreign for w in windows))


def gain_of(pairs: Sequence[Pair]) -> Gain:
    """Return the speed-up of the second of each pair over the first, as a geometric mean."""
    logs = [math.log(one.latency_s / other.latency_s) for one, other in pairs]
    inner = math.sqrt(
        math.fsum((w.stderr_s / w.latency_s) ** 2 for pair in pairs for w in pair)
    ) / len(pairs)
    scatter = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    speedup = math.exp(statistics.fmean(logs))
    return Gain(speedup, speedup * max(inner, scatter))
