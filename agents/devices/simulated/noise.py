"""Noise between repeated measurements: about 1 % over 10 s, 3 % over 1 s; our own figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist

EPOCH_S = 0.5
"""Speed and power keep one deviation for this many seconds."""
SPEED_SD = 0.015
POWER_SD = 0.035
OUTLIER_SHARE = 0.01
OUTLIER_SD = 0.15
"""In one epoch of a hundred the power has this standard deviation instead."""
POWER_TOTAL_SD = math.sqrt((1.0 - OUTLIER_SHARE) * POWER_SD**2 + OUTLIER_SHARE * OUTLIER_SD**2)

REQUEST_SD = 0.035
HICCUP_SHARE = 0.002
HICCUP_SHIFT = 0.15
HICCUP_SD = 0.05
"""Two requests of a thousand take about a sixth longer."""


def epoch_factors(seed: int, epoch: int) -> tuple[float, float]:
    """Return the factors of step time and power, deterministic for a seed and epoch."""
    rng = Random(f"{seed}/epoch/{epoch}")
    speed = math.exp(rng.gauss(0.0, SPEED_SD))
    spread = OUTLIER_SD if rng.random() < OUTLIER_SHARE else POWER_SD
    return speed, max(0.1, rng.gauss(1.0, spread))


def request_factor(rng: Random) -> float:
    """Return the factor of one request's time over that of its batch."""
    if rng.random() < HICCUP_SHARE:
        return math.exp(rng.gauss(HICCUP_SHIFT, HICCUP_SD))
    return math.exp(rng.gauss(0.0, REQUEST_SD))


def mean_factor() -> float:
    """Return the mean of a request's latency over its batch's noise-free time."""
    common = SPEED_SD**2
    usual = math.exp((REQUEST_SD**2 + common) / 2.0)
    rare = math.exp(HICCUP_SHIFT + (HICCUP_SD**2 + common) / 2.0)
    return (1.0 - HICCUP_SHARE) * usual + HICCUP_SHARE * rare


def quantile_factor(quantile: float) -> float:
    """Return a quantile of a request's latency over its batch's noise-free time."""
    usual = NormalDist(0.0, math.hypot(REQUEST_SD, SPEED_SD))
    rare = NormalDist(HICCUP_SHIFT, math.hypot(HICCUP_SD, SPEED_SD))

    def below(x: float) -> float:
        return (1.0 - HICCUP_SHARE) * usual.cdf(x) + HICCUP_SHARE * rare.cdf(x)

    return math.exp(_solve(below, quantile, -1.0, 2.0))


def _solve(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return the argument at which a rising function reaches a target, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return low
