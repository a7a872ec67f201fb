"""Which row of a plan a signal asks for, estimated from looks at it; pure, time is passed in.

After the estimator of Packrat's prototype (arXiv 2311.18174; `estimator/src/consumer.rs`): a smoothed
queue depth, and the most frequent answer of the last ten. Ours: the answer is a row of the plan, where
the prototype takes a power of two, so that any signal can be followed; the depth is the exact mean
between two looks where the signal reports it, not sampled; the smoothing goes by time, not by ticks; and
only down goes by the majority: more counts at once, for too small a setting makes a queue, too large a
one only wastes. The rows of an eager plan end just above loads that limits were proven at, where
the noise of a count would change rows all the time: it goes by how high a rate surely is, within two
seconds or ten, whichever is more.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from agents.target.side import SignalSample
from tuner.core import Plan

SMOOTHING_S = 2.0
"""The time constant of the smoothed level; Packrat's 0.9 and 0.1 at ticks of 5 ms forget faster."""
STEADY_S = 10.0
"""The time constant of the slower level, by which an eager plan sees a load that grows little by little."""
SURE = 2.0
"""An eager plan uses a rate less this number of standard deviations of its count: two."""
VOTES = 10
VOTE_S = 1.0
"""Seconds between votes of a row, as in the prototype, at any rate of reading."""


class SignalLevel:
    """Follows the signal that a plan goes by.

    `row` is the row that it asks for, `smoothed` its level: None until two looks have been taken. `rate`
    says that it counts what comes, per second. `latest` is the mean between the last two looks, 0 where
    they do not tell it; `present` its value at the last look where reported, else `latest`.
    """

    def __init__(self, plan: Plan, *, rate: bool = False) -> None:
        self.plan = plan
        self.row: int | None = None
        self.smoothed: float | None = None
        self.latest = self.present = 0.0
        self._steady = 0.0
        self._rate = rate
        self._last: tuple[float, SignalSample] | None = None
        self._vote: int | None = None
        self._voted_at = -math.inf
        self._votes: deque[int] = deque(maxlen=VOTES)

    def see(self, now: float, sample: SignalSample) -> None:
        """Take in a look at `now` seconds; one that reports nothing new changes nothing.

        What was started again, or whose totals went backwards, is compared with itself from then on;
        its level is kept.
        """
        last, self._last = self._last, (now, sample)
        if last is None or now <= last[0]:
            return
        seconds, before = now - last[0], last[1]
        self.latest = self.present = 0.0
        mean = _mean(before, sample, seconds)
        if mean is None or not math.isfinite(mean):
            return
        self.latest = mean
        present = sample.present
        self.present = present if present is not None and math.isfinite(present) else mean
        if self.smoothed is None:
            self.smoothed = self._steady = mean
        else:
            self.smoothed += (mean - self.smoothed) * (1.0 - math.exp(-seconds / SMOOTHING_S))
            self._steady += (mean - self._steady) * (1.0 - math.exp(-seconds / STEADY_S))
        if now - self._voted_at >= VOTE_S:
            self._voted_at = now
            self._cast(self.plan.row({self.plan.by: self._sure}, self._vote))

    @property
    def _sure(self) -> float:
        """The level that rows are chosen by."""
        level = 0.0 if self.smoothed is None else self.smoothed
        if not (self.plan.eager and self._rate):
            return level
        return max(_surely(level, SMOOTHING_S), _surely(self._steady, STEADY_S))

    def rise(self) -> None:
        """Take the present value for the level at once, because a change was made for it."""
        self.smoothed = self._steady = self.present
        self._rise(self.plan.row({self.plan.by: self.present}))

    def pause(self) -> None:
        """Leave out what happens until the next look: it is not asked of the workload."""
        self._last = None
        self.latest = self.present = 0.0

    def _cast(self, vote: int) -> None:
        if self.row is None or vote > self.row:
            self._rise(vote)
        self._vote = vote
        self._votes.append(vote)
        self.row = _mode(self._votes, self.row)

    def _rise(self, row: int) -> None:
        """Ask for a row; only votes from now on bring it down again."""
        self.row = self._vote = row
        self._votes.extend([row] * VOTES)


def _mean(before: SignalSample, now: SignalSample, seconds: float) -> float | None:
    """Return a signal's mean between two looks; None where they do not tell it."""
    if now.incarnation != before.incarnation:
        return None
    if now.integral is None or before.integral is None:
        return now.present
    grown = now.integral - before.integral
    return None if grown < 0.0 else grown / seconds


def _surely(rate: float, constant_s: float) -> float:
    """Return how high a rate surely is: its mean counts what came within twice the time constant."""
    return rate - SURE * math.sqrt(max(0.0, rate) / (2.0 * constant_s))


def _mode(votes: deque[int], current: int | None) -> int:
    """Return the most frequent vote; of equals the one in force, else the largest: it can take more."""
    counts = Counter(votes)
    most = max(counts.values())
    tied = [vote for vote, count in counts.items() if count == most]
    return current if current in tied else max(tied)


class SwitchingCost:
    """When a change of row pays: once staying has cost as much as changing will.

    The rule of ski rental (Karlin, Manasse, Rudolph and Sleator 1988): a change made once the time
    lost by staying equals the cost of the change never pays more than twice what foresight would. Time
    is lost at the predicted `gain` of the wanted row, in seconds per second. What a look shows has been
    so since the one before.
    """

    def __init__(self) -> None:
        self.lost_s = 0.0
        self._at: float | None = None

    def due(self, now: float, gain: float, cost_s: float) -> bool:
        """Note that another row is wanted at `now`, and return whether to change to it."""
        if self._at is not None:
            self.lost_s += gain * max(0.0, now - self._at)
        self._at = now
        return gain > 0.0 and self.lost_s >= cost_s

    def settle(self, now: float | None = None) -> None:
        """Note that nothing is lost: until `now`, or until the next look."""
        self.lost_s, self._at = 0.0, now
