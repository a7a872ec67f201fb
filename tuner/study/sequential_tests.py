"""Sequential tests: windows are looked at again and again, and each look is a chance to err by luck.

A CUSUM detects that a metric has drifted; the levels of a few looks prove that a gain is real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from tuner.core import Z95, Estimate, MetricSample

SLACK_SD = 0.5
ALARM_SD = 12.0
"""Alarm threshold of a CUSUM of standardised residuals (Page 1954), with a slack of half a deviation.

A steady process of one window a minute reaches it by chance about once in months, not hours.
"""
LEAST_RELATIVE_SD = 0.02
"""Least relative uncertainty of a window, 2 %: without it a quiet meter alarms on nothing."""
LEVELS = (0.004, 0.006, 0.009, 0.0125)
"""The one-sided level of each look: over all looks, which share windows, an error below 2.5 %
(our choice)."""
PROVEN = NormalDist().inv_cdf(0.975)
"""Standard errors, as the windows report them, that prove a gain together with `beyond_scatter`.

After one contender without a proven gain no other is compared, because each would have its own
chance to win by luck.
"""
HALVINGS = 60


@dataclass(slots=True)
class Cusum:
    """A two-sided CUSUM over log-ratio residuals in units of a window's uncertainty.

    `rising` and `falling` count the windows since the sum of that side was last zero: after an
    alarm, the windows that the shift has lasted.
    """

    up: float = 0.0
    down: float = 0.0
    rising: int = 0
    falling: int = 0

    def take(self, shift: float, sd: float, blind: float) -> bool:
        """Add a window's residual and return whether it raises an alarm.

        The expected value may itself be off, equally for all windows: a shift within `blind` is
        ignored.
        """
        self.up = max(0.0, self.up + (shift - blind) / sd - SLACK_SD)
        self.down = max(0.0, self.down - (shift + blind) / sd - SLACK_SD)
        self.rising = self.rising + 1 if self.up > 0.0 else 0
        self.falling = self.falling + 1 if self.down > 0.0 else 0
        return max(self.up, self.down) > ALARM_SD

    @property
    def lasting(self) -> int:
        """Number of latest windows over which the larger of the two sums has been growing."""
        return self.rising if self.up > self.down else self.falling


def relative_sd(mean: float, stderr: float) -> float:
    """Return the uncertainty of a window relative to its mean."""
    return max(stderr / abs(mean), LEAST_RELATIVE_SD)


def drift(metric: str, expected: Estimate, windows: Sequence[MetricSample]) -> str | None:
    """Return as text how a metric has drifted from its expected value, None if it has not."""
    if expected.mean == 0.0:  # nothing is a share of it
        return None
    cusum, blind = Cusum(), Z95 * expected.stderr / abs(expected.mean)
    for window in windows:
        if expected.mean < 0.0:  # no logarithm there: the difference relative to the expected value
            shift = (window.mean - expected.mean) / -expected.mean
            sd = relative_sd(expected.mean, window.stderr)
        elif window.mean > 0.0:
            shift = math.log(window.mean / expected.mean)
            sd = relative_sd(window.mean, window.stderr)
        else:
            continue
        if cusum.take(shift, sd, blind):
            return f"{metric} has drifted from {expected.mean:.4g} to {window.mean:.4g}"
    return None


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
