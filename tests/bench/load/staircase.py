"""A staircase: each band of the rate goes one clock step down at a time, in turns with the held step.

Its server has the escape (`escape`): it runs at its default while requests wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from jouletune_bench.llm import ServedRequest, ServerCounters, ServesRequests
from tests.bench.load.governors import clocks
from tests.bench.load.servers import Limits, quantile

SMOOTH_S = 30.0
"""Time constant of the rate that selects a band."""
BAND = 1.25
"""The ratio between the ends of a band."""
TURN_S = 150.0
"""The lengths of a turn at the next steps and of one at the held steps."""
ENOUGH_S, ENOUGH = 150.0, 299
"""The seconds and requests after which a band's step is judged."""
FEWER_S = 1800.0
"""Or these seconds: at a low rate no p99 is known earlier."""
NEAR = 0.9
"""No step down from a p99 above this share of its limit."""
FAR = 0.6
"""Two steps at a time if the p99 is below this share."""
WORSE = 1.03
"""A band has ended once a step needs this multiple of its best joules per token."""
MATTERS = 0.04
"""A band with a smaller share of the time is not awaited."""
LEAST_S = 3600.0


@dataclass
class Step:
    """The results of a band at one clock."""

    seconds: float = 0.0
    joules: float = 0.0
    tokens: float = 0.0
    ratios: list[float] = field(default_factory=list)

    @property
    def enough(self) -> bool:
        """Whether it can be judged."""
        few = self.seconds >= FEWER_S and len(self.ratios) >= 30
        return self.seconds >= ENOUGH_S and (len(self.ratios) >= ENOUGH or few)

    @property
    def p99(self) -> float:
        """For each request the larger of its times relative to their limits."""
        return quantile(self.ratios, 0.99)

    @property
    def cost(self) -> float:
        """Joules per token."""
        return self.joules / max(1.0, self.tokens)


@dataclass
class Stairs:
    """The steps of one band; `place` is the held one, `ended` is set once no lower step will be tried."""

    place: int
    ended: bool = False
    steps: dict[int, Step] = field(default_factory=dict)

    def tried(self) -> int:
        """Return the next place."""
        own = self.steps.get(self.place)
        far = own is not None and own.enough and own.p99 < FAR
        return max(0, self.place - (2 if far else 1))

    def judge(self, place: int) -> None:
        """Move down, or end."""
        step = self.steps[place]
        if not step.enough:
            return
        if step.p99 > NEAR or self._smoothed(place) > WORSE * min(
            map(self._smoothed, self._good())
        ):
            self._end()
            return
        self.place = place
        if place == 0:
            self._end()

    def _good(self) -> dict[int, Step]:
        good = {p: s for p, s in self.steps.items() if s.enough and s.p99 <= NEAR}
        return good or self.steps

    def _end(self) -> None:
        """Hold the best place that keeps the limit."""
        self.ended = True
        self.place = min(self._good(), key=self._smoothed)

    def _smoothed(self, place: int) -> float:
        """Return the joules per token over a place and its neighbours, because single turns are noisy."""
        near = [s for p, s in self.steps.items() if abs(p - place) <= 2 and s.enough]
        near = near or [self.steps[place]]
        return sum(s.joules for s in near) / max(1.0, sum(s.tokens for s in near))


class Staircase:
    """A controller that learns while it is played, until `held` is called."""

    tick_s = 1.0

    def __init__(self, limits: Limits, *, one: bool = False) -> None:
        """Keep these limits; with `one` all loads have one clock."""
        self._limits, self._one = limits, one
        self.stairs: dict[int, Stairs] = {}
        self.seconds: dict[int, float] = {}
        self.held = False

    def begin(self, server: ServesRequests) -> None:
        """Start at the default."""
        self._clocks = clocks(server)
        self._top = self._place = len(self._clocks) - 1
        self._rate = math.nan
        self._last = server.counters()
        self._tags: deque[tuple[float, int, int]] = deque(maxlen=1200)

    @property
    def done(self) -> bool:
        """Whether all bands that matter have ended."""
        total = sum(self.seconds.values())
        return total > LEAST_S and all(
            self.stairs[band].ended for band, s in self.seconds.items() if s > MATTERS * total
        )

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Observe, learn and set."""
        now, last = server.counters(), self._last
        seconds = now.now_s - last.now_s
        if seconds <= 0.0:
            return
        self._last = now
        rate = (now.arrived - last.arrived) / seconds
        keep = math.exp(-seconds / SMOOTH_S)
        self._rate = rate if math.isnan(self._rate) else rate + keep * (self._rate - rate)
        band = 0 if self._one else math.floor(math.log(max(self._rate, 1e-3)) / math.log(BAND))
        if not self.held:
            self._learn(band, now, last, served)
        place = self._wanted(band, now.now_s)
        if place != self._place:
            self._place = place
            server.apply(self._clocks[place])

    def _learn(
        self, band: int, now: ServerCounters, last: ServerCounters, served: Sequence[ServedRequest]
    ) -> None:
        seconds = now.now_s - last.now_s
        self.seconds[band] = self.seconds.get(band, 0.0) + seconds
        stairs = self.stairs.setdefault(band, Stairs(self._top))
        step = stairs.steps.setdefault(self._place, Step())
        step.seconds += seconds
        step.joules += now.energy_j - last.energy_j
        step.tokens += now.tokens - last.tokens
        self._tags.append((last.now_s, band, self._place))
        for each in served:
            at = next((tag for tag in reversed(self._tags) if tag[0] <= each.arrival_s), None)
            if at is not None:
                ratio = self._limits.worst(each.ttft_s, each.tpot_s)
                self.stairs[at[1]].steps[at[2]].ratios.append(ratio)
        if not stairs.ended and self._place < stairs.place:
            stairs.judge(self._place)

    def _wanted(self, band: int, now_s: float) -> int:
        stairs = self.stairs.get(band)
        if stairs is None:
            return self._top
        trying = not (self.held or stairs.ended) and int(now_s / TURN_S) % 2
        return stairs.tried() if trying else stairs.place
