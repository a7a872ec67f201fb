"""The number of drafted tokens that a step accepts: l(s) for every s, from the counts of few windows.

One window at length s shows l(s') for every s' up to s, since a token is accepted only if all
before it were. Whether the counts of windows are of the same text is tested, as acceptance depends
on the workload.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.core import Estimate, InvalidInput

PER_STEP = "accepted_per_step"
"""Accepted tokens of a sequence in a step, where the engine does not report them by position."""
CONTRADICTION = 3.3
"""Standard errors by which a window must differ from those before it to replace them: our choice."""
SCATTER = 0.03
"""The share by which windows of the same workload differ beyond their counts: our choice."""
GEOMETRIC_SD = 0.05
"""The share by which a geometric acceptance is wrong at another length than the measured one: our
choice."""
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class AcceptedLength:
    """Mean accepted tokens per sequence and step for one length, and its standard error."""

    mean: float
    stderr: float


Lengths = tuple[AcceptedLength, ...]
"""The accepted tokens for the lengths 1, 2, … as far as they were measured."""


def position(i: int) -> str:
    """Return the metric for the share of steps in which the first `i` tokens were accepted."""
    return f"accepted_at_{i}"


def observed_lengths(shown: Mapping[str, Estimate], length: int) -> Lengths:
    """Return the acceptance in a window at a length; empty where the engine does not report it.

    Raises:
        InvalidInput: the shares are impossible, as after a reset of the engine's counters.
    """
    if length and position(1) in shown:
        names = itertools.takewhile(shown.__contains__, map(position, range(1, length + 1)))
        return by_position([shown[name] for name in names])
    if length and PER_STEP in shown:
        return by_mean(shown[PER_STEP], length)
    return ()


def by_position(shares: Sequence[Estimate]) -> Lengths:
    """Return l(1), l(2), … from the shares of steps in which the first i tokens were accepted.

    l(s) is the sum of the first s shares. The variance of the accepted tokens of a step follows
    from them: E[A²] = Σ (2i - 1) P(A ≥ i).

    Raises:
        InvalidInput: a share outside 0 … 1, or above the one of the position before.
    """
    lengths: list[AcceptedLength] = []
    total = squares = 0.0
    before = 1.0
    steps = _sequence_steps(shares)
    for i, share in enumerate(shares, start=1):
        # Positions are counted separately: each may exceed the one before by its own error.
        slack = ROUNDING + CONTRADICTION * share.stderr
        if not (-ROUNDING <= share.mean <= min(1.0 + ROUNDING, before + slack)):
            raise InvalidInput(
                f"{position(i)} is {share.mean:g} after {before:g} at the position before",
                hint="the engine's counters were reset, or count something else; measure again",
            )
        before = min(before, max(0.0, share.mean))
        total += before
        squares += (2 * i - 1) * before
        spread = math.sqrt(max(0.0, squares - total**2) / steps)
        lengths.append(AcceptedLength(total, max(spread, 1.0 / (steps + 1.0))))
    return tuple(lengths)


def by_mean(mean: Estimate, length: int) -> Lengths:
    """Return l(1), l(2), … of the geometric acceptance with this mean at a length.

    Position-independent acceptance is the usual assumption (Leviathan et al., arXiv 2211.17192,
    section 3.1). Its standard error grows with the distance of a length from the measured one.

    Raises:
        InvalidInput: more tokens accepted than drafted, or less than none.
    """
    if not -ROUNDING <= mean.mean <= length + ROUNDING:
        raise InvalidInput(
            f"{PER_STEP} is {mean.mean:g} at a length of {length}",
            hint="the engine's counters were reset, or count something else; measure again",
        )
    rate = acceptance_rate(min(max(mean.mean, 0.0), float(length)), length)
    relative = mean.stderr / mean.mean if mean.mean > 0.0 else 0.0
    lengths = []
    for s in range(1, length + 1):
        value = geometric(rate, s)
        model = GEOMETRIC_SD * (1.0 + value) * (length - s) / length
        lengths.append(
            AcceptedLength(value, max(math.hypot(relative * value, model), 1.0 / (mean.n + 1)))
        )
    return tuple(lengths)


def geometric(rate: float, length: int) -> float:
    """Return the accepted tokens of a step if each is accepted at a rate: Σ rate^i."""
    return math.fsum(rate**i for i in range(1, length + 1))


def acceptance_rate(accepted: float, length: int) -> float:
    """Return the acceptance rate of each token at which a step accepts `accepted` tokens in the mean."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if geometric(middle, length) < accepted else (low, middle)
    return (low + high) / 2.0


def pooled(windows: Iterable[Lengths]) -> Lengths:
    """Return the pooled acceptance of several windows, in their order; those before a drift are dropped.

    A window that contradicts the pool by more than chance starts a new pool.
    """
    pool: Lengths = ()
    for window in windows:
        common = list(zip(pool, window, strict=False))
        if any(_contradict(a, b) for a, b in common):
            pool = window
            continue
        rest = pool[len(common) :] or window[len(common) :]
        pool = (*(_mean(a, b) for a, b in common), *rest)
    return pool


def _contradict(a: AcceptedLength, b: AcceptedLength) -> bool:
    """Return whether two values differ by more than `CONTRADICTION` standard errors."""
    doubt = math.hypot(a.stderr, b.stderr, SCATTER * (1.0 + max(a.mean, b.mean)))
    return abs(a.mean - b.mean) > CONTRADICTION * doubt


def _mean(a: AcceptedLength, b: AcceptedLength) -> AcceptedLength:
    """Return the mean of two values, each weighted by its precision."""
    one, other = a.stderr**-2, b.stderr**-2
    return AcceptedLength((one * a.mean + other * b.mean) / (one + other), (one + other) ** -0.5)


def _sequence_steps(shares: Sequence[Estimate]) -> float:
    """Return the number of sequence-steps behind shares, from their standard errors."""
    steps = [
        max(1.0, s.mean * (1.0 - s.mean) / s.stderr**2)
        for s in shares
        if s.stderr > 0.0 and 0.0 < s.mean < 1.0
    ]
    return min(steps, default=float(max((s.n for s in shares), default=1)))
