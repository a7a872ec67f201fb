"""Levels of a gain that is looked at several times: each look is a chance to win by luck."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

LEVELS = (0.004, 0.006, 0.009, 0.0125)
"""The one-sided level of each look: over all looks, which share windows, an error below 2.5 %
(our choice)."""
PROVEN = NormalDist().inv_cdf(0.975)
"""Standard errors, as the windows report them, that prove a gain together with `beyond_scatter`.

After one contender without a proven gain no other is compared, because each would have its own
chance to win by luck.
"""
HALVINGS = 60


def beyond_scatter(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether two groups of values differ by more than their scatter, whatever errors they report.

    A group is looked at when it has two, three, four and five values.
    """
    freedom = len(before) + len(after) - 2
    if freedom < 2:
        return False
    squares = sum((value - fmean(each)) ** 2 for each in (before, after) for value in each)
    error = math.sqrt(squares / freedom * (1.0 / len(before) + 1.0 / len(after)))
    look = min(freedom // 2, len(LEVELS)) - 1
    return abs(fmean(before) - fmean(after)) > proven_t(2 * (look + 1), look) * error


def proven_t(freedom: int, look: int, among: int = 1) -> float:
    """Return the least Student's t of a gain at a look, from 0; `among` settings share its level."""
    level = LEVELS[min(look, len(LEVELS) - 1)] / max(1, among)
    low, high = 0.0, math.pi / 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _beyond(middle, freedom) > level else (low, middle)
    return math.sqrt(freedom) * math.tan(high) if freedom >= 1 else math.inf


def _beyond(angle: float, freedom: int) -> float:
    """Return the chance of a t above sqrt(freedom) × tan(angle) (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    odd = freedom % 2
    power = math.cos(angle) if odd else 1.0
    series = 0.0
    for k in range(1 + odd, freedom, 2):
        series += power
        power *= math.cos(angle) ** 2 * k / (k + 1)
    within = 2.0 / math.pi * (angle + math.sin(angle) * series) if odd else math.sin(angle) * series
    return (1.0 - within) / 2.0
