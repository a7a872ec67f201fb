"""Decides when a fine-tuning job may run, by the latency of the inference beside it.

Their interference is not modelled. A request may wait for a step, share the cores or lose a cache; the
tail latency of the window so far shows each. From whole windows the pacer learns the share of them
above the limit as a function of the share of the time that the job may run: a constant part, since a
noisy host breaks the limit without fine-tuning, too, and a part that rises with the job's share. Only
the latter is attributed to the job. The largest share is taken at which that part is expected to be as
small as allowed. The method and its constants are our own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

LEAST, RISE = 0.02, 1.5
"""The least share of the time that is tried, and the most by which the share grows after a window."""
STEPS = 18
SHARES = (0.0, *(LEAST ** (1.0 - step / STEPS) for step in range(STEPS + 1)))
"""The shares that are compared."""
CLOSE = 0.96
"""Within a window the job is paused while the tail so far is above this part of the limit."""
LONGEST, KEPT = 0.5, 0.9
"""The longest pause at the end of a window, and the part of it that is kept for the next window. Both,
like `CLOSE`, were chosen on made-up pairs and a queue (tests.bench.admission.made_up), not on the real
pair."""
ALLOWED = 0.03
"""Share of windows that fine-tuning may push above the limit."""
MOST_LEFT = 3.0
"""The most windows above the limit that are saved up."""
BACKGROUNDS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5)
"""Possible shares of windows above the limit without fine-tuning; each is half as likely as the one
before it."""
SCALES = tuple(0.01 * 1.5**i for i in range(17))
SHAPES = (1.0, 2.0, 4.0)
"""Fine-tuning at a share s pushes 1 - exp(-(s / scale)^shape) of the other windows above the limit. That
it pushes none is as likely as all scales and shapes together."""
TOLERATED = 0.5
"""Part of the background that is allowed in addition: smaller harm cannot be distinguished from it in
minutes. This and `ALLOWED` were chosen on made-up pairs of other seeds than the bench's."""
STOPPED_TURN = 4
"""One of this many windows may run with the job stopped.

Its turn does not depend on the window before: noise comes in bursts, and a stopped window right
after one above the limit would overstate the noise.
"""
UNLIKELY = 0.002
"""No window is less likely than this, either way."""
REMEMBERED = 1.0 - 1.0 / 200.0
"""The weight of a window's evidence after each further window: interference and load change."""
CHANGED = 1.0 / ALLOWED**2
"""Odds of a change at which all evidence is discarded: on a quiet host three of four windows above the
limit."""


@dataclass(frozen=True, slots=True)
class _Curve:
    """One possible pair: windows above the limit without the job, and more at each of the shares."""

    background: float
    caused: tuple[float, ...]
    prior: float


def _curves() -> Iterator[_Curve]:
    """Yield every background with every scale and shape."""
    forms = list(itertools.product(SCALES, SHAPES))
    for i, background in enumerate(BACKGROUNDS):
        yield _Curve(background, (0.0,) * len(SHARES), math.log(len(forms)) - i * math.log(2.0))
        for scale, shape in forms:
            harm = (-math.expm1(-((share / scale) ** shape)) for share in SHARES)
            caused = tuple((1.0 - background) * one for one in harm)
            yield _Curve(background, caused, -i * math.log(2.0))


CURVES = tuple(_curves())


@dataclass(slots=True)
class FineTuningPacer:
    """Decide at each look, and after each window, whether fine-tuning runs.

    `share` is the share of the time that the job may run. `background` is the expected share of
    windows above the limit without it.
    """

    limit: float
    share: float = LEAST
    background: float = 0.0
    _owed: float = 0.0
    _windows: float = 0.0
    _caused: float = 0.0
    _above: int = 0
    _stopped: int = 0
    _turn: int = 0
    _stops: bool = False
    _likely: list[float] = field(default_factory=lambda: [0.0] * len(CURVES))
    _odds: float = 1.0
    _high_since: float = math.inf
    _recovery: float = 0.0

    def look(self, tail: float | None, elapsed: float) -> bool:
        """Return whether the job may run for a turn; `tail` is the tail latency so far, if any.

        `elapsed` is the part of the window so far. A tail above the limit falls below it only by
        later requests. So the job does not run if less of the window is left than the last such recovery
        took.
        """
        if self._stops or not self.share:
            return False
        if tail is not None and tail > CLOSE * self.limit:
            self._high_since = min(self._high_since, elapsed)
            return False
        self._recovered(elapsed)
        if elapsed > 1.0 - self._recovery:
            return False
        self._owed += self.share
        runs = self._owed >= 1.0
        self._owed -= runs
        return runs

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Record the tail latency of a whole window, and whether fine-tuning ran in it."""
        self._recovered(1.0)
        self._recovery *= KEPT if ran else 1.0
        above = tail is not None and tail > self.limit
        place = SHARES.index(self.share) if ran else 0
        self._detect(above=above)
        weights = self._learned(place, above=above)
        self._windows = REMEMBERED * self._windows + 1.0
        self._caused = REMEMBERED * self._caused + (_blame(weights, place) if above else 0.0)
        self.background = _mean(weights, [curve.background for curve in CURVES])
        self.share = self._largest(weights)
        self._above += ran and above
        self._stopped += not ran
        self._turn += 1
        self._stops = self._above > self._stopped and self._turn % STOPPED_TURN == 0

    def _recovered(self, elapsed: float) -> None:
        """Record how long the tail was above the limit, as a part of the window."""
        if self._high_since < elapsed:
            self._recovery = max(self._recovery, min(LONGEST, elapsed - self._high_since))
        self._high_since = math.inf

    def _detect(self, *, above: bool) -> None:
        """Discard all evidence once more windows are above the limit than it explains.

        Page's cumulative sum test of the expected rate r against (1 + r) / 2, as odds.
        """
        usual = self.background + ALLOWED
        self._odds = max(1.0, self._odds * ((1.0 + usual) / (2.0 * usual) if above else 0.5))
        if self._odds >= CHANGED:
            self._odds, self._windows, self._caused = 1.0, 0.0, 0.0
            self._likely = [0.0] * len(CURVES)

    def _learned(self, place: int, *, above: bool) -> list[float]:
        """Return the weights of the curves after a window at one of the shares."""
        for i, curve in enumerate(CURVES):
            chance = curve.background + curve.caused[place]
            chance = chance if above else 1.0 - chance
            self._likely[i] = REMEMBERED * self._likely[i] + math.log(max(UNLIKELY, chance))
        logs = [one + curve.prior for one, curve in zip(self._likely, CURVES, strict=True)]
        most = max(logs)
        weights = [math.exp(one - most) for one in logs]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def _largest(self, weights: list[float]) -> float:
        """Return the largest share whose expected harm is within the rest of the allowed harm."""
        left = min(MOST_LEFT, 1.0 + ALLOWED * self._windows - self._caused)
        allowed = left * (ALLOWED + TOLERATED * self.background)
        largest = 0.0
        for place, share in enumerate(SHARES[1:], start=1):
            expected = _mean(weights, [curve.caused[place] for curve in CURVES])
            if expected > allowed or share > max(LEAST, RISE * self.share):
                break
            largest = share
        # The least share is tried again once a whole window may be above the limit.
        return max(largest, LEAST if left >= 1.0 else 0.0)


def _blame(weights: list[float], place: int) -> float:
    """Return the chance that the job caused a window above the limit at one of the shares."""
    causes = [(curve.caused[place], curve.background) for curve in CURVES]
    return _mean(weights, [own / (own + other) if own else 0.0 for own, other in causes])


def _mean(weights: list[float], values: list[float]) -> float:
    """Return the weighted mean."""
    return math.fsum(w * v for w, v in zip(weights, values, strict=True))
