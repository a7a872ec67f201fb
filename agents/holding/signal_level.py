"""Chooses a plan's row from readings of its signal; pure, time is passed in.

After the estimator of Packrat's prototype (arXiv 2311.18174; `estimator/src/consumer.rs`): a
smoothed queue depth, and the most frequent of the last ten answers. Ours: the answer is a row of
the plan, where the prototype takes a power of two, so that any signal can be followed. The depth is
the exact mean between two readings if the signal reports it, not a sample. The smoothing is by
time, not by ticks. Only downward changes use the majority: a higher load counts immediately,
because too small a setting builds a queue and too large a one only wastes energy.

The setting of an eager plan is held up to just above the loads of its windows, so that the noise of a
count would change rows all the time. Such a plan uses the highest of the lower bounds of the rate within
2 s, 10 s and a minute: only a long count shows a load that stays a little above a row. The minute begins
again once the last 10 s contradict it, so that a burst has no long effect.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from agents.target.side import SignalSample
from tuner.core import Plan

SMOOTHING_S = 2.0
"""Time constant in s of the smoothed level; that of Packrat (weights 0.9 and 0.1, 5 ms) is shorter."""
STEADY_S = 10.0
"""Time constant in s of the slower level, by which an eager plan detects a slowly growing load."""
LASTING_S = 60.0
"""Time constant in s of the slowest level. At 3 requests/s it detects a load 15 % above a row; the slower
level detects 40 %."""
SURE = 2.0
"""An eager plan uses a rate less this number of standard deviations of its count."""
VOTES = 10
VOTE_S = 1.0
"""Seconds between votes for a row, as in the prototype, however often the signal is read."""


class SignalLevel:
    """Track the signal of a plan.

    `row` is the row for the present level; `smoothed` is that level, None until two readings were
    taken. `rate` is set if the signal counts arrivals per second. `latest` is the mean between the
    last two readings, 0 if they do not give one; `present` is the value at the last reading if
    reported, else `latest`.
    """

    def __init__(self, plan: Plan, *, rate: bool = False) -> None:
        self.plan = plan
        self.row: int | None = None
        self.smoothed: float | None = None
        self.latest = self.present = 0.0
        self._steady = self._lasting = 0.0
        self._lasting_s = STEADY_S
        self._minute = self._minute_s = 0.0
        self._rate = rate
        self._last: tuple[float, SignalSample] | None = None
        self._vote: int | None = None
        self._voted_at = -math.inf
        self._votes: deque[int] = deque(maxlen=VOTES)

    def see(self, now: float, sample: SignalSample) -> None:
        """Record a reading at `now` seconds; a reading not later than the last one changes no level.

        After a restart, or if totals went backwards, there is no mean: the levels and the row are kept,
        `latest` and `present` are 0, and the next reading is compared with this one.
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
            self.smoothed = self._steady = self._lasting = mean
        else:
            self.smoothed += (mean - self.smoothed) * (1.0 - math.exp(-seconds / SMOOTHING_S))
            self._steady += (mean - self._steady) * (1.0 - math.exp(-seconds / STEADY_S))
            self._last_on(mean, seconds)
        self._minute_s = min(LASTING_S, self._minute_s + seconds)
        self._minute += (mean - self._minute) * min(1.0, seconds / self._minute_s)
        if now - self._voted_at >= VOTE_S:
            self._voted_at = now
            self._cast(self.plan.row({self.plan.by: self._sure}, self._vote))

    def _last_on(self, mean: float, seconds: float) -> None:
        """Move the slowest level; its time constant grows with the time since it began."""
        self._lasting += (mean - self._lasting) * (1.0 - math.exp(-seconds / self._lasting_s))
        self._lasting_s = min(LASTING_S, self._lasting_s + seconds / 2.0)
        if abs(self._lasting - self._steady) > _doubt(self._lasting, STEADY_S):
            self._lasting, self._lasting_s = self._steady, STEADY_S

    @property
    def _sure(self) -> float:
        """The level that selects the row."""
        level = 0.0 if self.smoothed is None else self.smoothed
        if not (self.plan.eager and self._rate):
            return level
        return max(
            rate - _doubt(rate, constant_s)
            for rate, constant_s in (
                (level, SMOOTHING_S),
                (self._steady, STEADY_S),
                (self._lasting, self._lasting_s),
            )
        )

    @property
    def reported(self) -> float | None:
        """The level to report: a rate's mean over a minute, because within seconds its count is noise."""
        return self._minute if self._rate and self.smoothed is not None else self.smoothed

    def rise(self) -> None:
        """Set the level to the present value, because a change was made for it."""
        self.smoothed = self._steady = self._lasting = self.present
        self._lasting_s = STEADY_S
        self._rise(self.plan.row({self.plan.by: self.present}))

    def pause(self) -> None:
        """Ignore the time until the next reading: its load was not served by the plan."""
        self._last = None
        self.latest = self.present = 0.0

    def _cast(self, vote: int) -> None:
        """Add one sample's row to the votes. A higher row applies at once, a lower one by majority."""
        if self.row is None or vote > self.row:
            self._rise(vote)
        self._vote = vote
        self._votes.append(vote)
        self.row = _mode(self._votes, self.row)

    def _rise(self, row: int) -> None:
        """Select a row; only votes from now on lower it again."""
        self.row = self._vote = row
        self._votes.extend([row] * VOTES)


def _mean(before: SignalSample, now: SignalSample, seconds: float) -> float | None:
    """Return a signal's mean between two readings; None if they do not give one."""
    if now.incarnation != before.incarnation:
        return None
    if now.integral is None or before.integral is None:
        return now.present
    grown = now.integral - before.integral
    return None if grown < 0.0 else grown / seconds


def _doubt(rate: float, constant_s: float) -> float:
    """Return `SURE` standard deviations of a rate that counts arrivals within twice the time constant."""
    return SURE * math.sqrt(max(0.0, rate) / (2.0 * constant_s))


def _mode(votes: deque[int], current: int | None) -> int:
    """Return the most frequent vote; on a tie the row in force, else the largest: it has more capacity."""
    counts = Counter(votes)
    most = max(counts.values())
    tied = [vote for vote, count in counts.items() if count == most]
    return current if current in tied else max(tied)


class SwitchingCost:
    """Decide when a change of row pays: once staying has cost as much as changing will.

    The rule of ski rental (Karlin, Manasse, Rudolph and Sleator 1988): a change made once the time
    lost by staying equals the cost of the change never costs more than twice the optimum with
    foresight. Time is lost at the predicted `gain` of the wanted row, in seconds per second. A
    reading is taken to have been valid since the previous one.
    """

    def __init__(self) -> None:
        self.lost_s = 0.0
        self._at: float | None = None

    def due(self, now: float, gain: float, cost_s: float) -> bool:
        """Note at `now` that another row is wanted; return whether to change to it."""
        if self._at is not None:
            self.lost_s += gain * max(0.0, now - self._at)
        self._at = now
        return gain > 0.0 and self.lost_s >= cost_s

    def settle(self, now: float | None = None) -> None:
        """Note that no time is being lost: until `now`, or until the next look."""
        self.lost_s, self._at = 0.0, now
