"""How many items are asked for at once, estimated from a workload's pulse; pure, time is passed in.

After the estimator of Packrat's prototype (arXiv 2311.18174; `estimator/src/consumer.rs`): a smoothed
queue depth, a power of two for it, and the most frequent of the last ten. Ours: the depth is the exact
mean between two looks, not sampled; the smoothing goes by time, not by ticks; the power of two is the
nearest, where the prototype takes the largest below, so that a load of just 8 sits on a bound; it is
left only where its bounds are overstepped clearly; no arrivals mean a demand of 1, where the prototype
ended; and only down goes by the majority: more demand counts at once, for too small a setting makes a
queue, too large a one only wastes.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from agents.attached import Pulse

SMOOTHING_S = 2.0
"""The time constant of the smoothed depth; Packrat's 0.9 and 0.1 at ticks of 5 ms forget faster."""
VOTES = 10
VOTE_S = 1.0
"""A power of two gets a vote every so many seconds, as in the prototype, however often is looked."""
HYSTERESIS = 0.1
"""The share by which a power of two must be overstepped before another one gets the vote."""


class LoadEstimator:
    """Follows one workload; `demand` is a power of two, None until two looks have been taken.

    `depth` is smoothed, `latest` the mean depth between the last two looks, 0 where they do not tell it;
    `present` the depth at the last look where the workload tells it, else `latest`.
    """

    def __init__(self) -> None:
        self.demand: int | None = None
        self.depth: float | None = None
        self.latest = self.present = 0.0
        self._last: tuple[float, Pulse] | None = None
        self._vote = 1
        self._voted_at = -math.inf
        self._votes: deque[int] = deque(maxlen=VOTES)

    def see(self, now: float, pulse: Pulse) -> None:
        """Take in a look at `now` seconds; one that tells nothing new changes nothing.

        A workload that was started again, or whose totals went backwards, is compared with itself
        from then on; what was known of its load stands.
        """
        last, self._last = self._last, (now, pulse)
        if last is None:
            return
        seconds, before = now - last[0], last[1]
        grown = pulse.in_flight_s - before.in_flight_s
        if seconds <= 0.0:
            self._last = last
            return
        self.latest = self.present = 0.0
        if pulse.incarnation != before.incarnation or grown < 0.0:
            return
        self.latest = depth = grown / seconds
        self.present = depth if pulse.inside is None else float(pulse.inside)
        if self.depth is None:
            self.depth = depth
        else:
            self.depth += (depth - self.depth) * (1.0 - math.exp(-seconds / SMOOTHING_S))
        if now - self._voted_at >= VOTE_S:
            self._voted_at = now
            vote = _power(self.depth, self._vote if self._votes else None)
            if self.demand is None or vote > self.demand:
                self._rise(vote)
            self._vote = vote
            self._votes.append(vote)
            self.demand = _mode(self._votes, self.demand)

    def rise(self) -> None:
        """Take the present depth for the demand at once, as somebody has acted on it."""
        self.depth = self.present
        self._rise(_power(self.present, None))

    def _rise(self, demand: int) -> None:
        """Set the demand; only votes from now on bring it down again."""
        self.demand = self._vote = demand
        self._votes.extend([demand] * VOTES)

    def pause(self) -> None:
        """Leave out what happens until the next look: it is no demand."""
        self._last = None
        self.latest = self.present = 0.0


def _power(depth: float, current: int | None) -> int:
    """Return the nearest power of two, by ratio, at least 1; `current` near its bounds."""
    if current is not None:
        low = current / math.sqrt(2.0) * (1.0 - HYSTERESIS) if current > 1 else -math.inf
        if low <= depth < current * math.sqrt(2.0) * (1.0 + HYSTERESIS):
            return current
    return 1 << round(math.log2(max(1.0, depth)))


def _mode(votes: deque[int], current: int | None) -> int:
    """Return the most frequent vote; of equals the one in force, else the largest: it can take more."""
    counts = Counter(votes)
    most = max(counts.values())
    tied = [vote for vote, count in counts.items() if count == most]
    return current if current in tied else max(tied)


class Rent:
    """When a change of row pays: once staying has cost as much as changing will.

    The rule of ski rental (Karlin, Manasse, Rudolph and Sleator 1988): whoever changes once the time
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
        """Note that nothing is lost: until `now`, or for as long as nobody looks."""
        self.lost_s, self._at = 0.0, now
