"""Quantiles with honest bounds: order statistics, no assumption on the distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.core.errors import MeasurementError
from tuner.core.measurements import Estimate, Origin, Scope

CONFIDENCE = 0.95


def least_samples(quantile: float) -> int:
    """Return how many samples an upper 95 % bound on `quantile` needs: 299 for a p99.

    The largest of n samples exceeds the quantile with probability 1 - quantile**n.
    """
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log(quantile))


def quantile_estimate(
    samples: Sequence[float],
    quantile: float,
    *,
    origin: Origin = Origin.MEASURED,
    scope: Scope = Scope.SERVICE,
) -> Estimate:
    """Estimate a quantile with one-sided 95 % bounds by order statistics.

    The k-th smallest of n samples is below the quantile with probability P(Binomial(n, q) ≥ k); the
    upper bound is the smallest sample for which that leaves 5 %, infinite where even the largest
    does not (fewer than `least_samples`). The standard error is half the distance between the two
    order statistics that lie one binomial deviation below and above the quantile's rank.

    Raises:
        MeasurementError: no samples, or one that is not finite.
    """
    if not samples:
        raise MeasurementError("a quantile needs at least one sample")
    ordered = sorted(samples)
    if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
        raise MeasurementError("a latency sample is not a finite number")
    n = len(ordered)
    point = ordered[min(n - 1, math.ceil(n * quantile) - 1)]
    deviation = math.sqrt(n * quantile * (1.0 - quantile))
    upper = min(n - 1, math.ceil(n * quantile + deviation) - 1)
    lower = max(0, math.floor(n * quantile - deviation) - 1)
    high_at, low_at = _bound_ranks(n, quantile)
    return Estimate(
        point,
        (ordered[upper] - ordered[lower]) / 2.0,
        n,
        ordered[low_at] if low_at is not None else -math.inf,
        ordered[high_at] if high_at is not None else math.inf,
        origin,
        scope,
    )


def _bound_ranks(n: int, quantile: float) -> tuple[int | None, int | None]:
    """Return the zero-based ranks of the upper and the lower 95 % bound, None where there is none.

    Rank r (zero-based) exceeds the quantile when at most r samples lie below it, so the upper bound
    is the least r with P(Binomial(n, q) ≤ r) ≥ 0.95; the lower one mirrors it.
    """
    upper: int | None = None
    lower: int | None = None
    cumulative = 0.0
    for below, mass in enumerate(_binomial(n, quantile)):
        if cumulative <= 1.0 - CONFIDENCE:
            lower = below - 1 if below > 0 else None
        cumulative += mass
        if upper is None and cumulative >= CONFIDENCE and below < n:
            upper = below
    return upper, lower


def _binomial(n: int, p: float) -> list[float]:
    """Return the probabilities of 0 … n successes, by logarithms so that large n do not underflow."""
    log_p, log_q = math.log(p), math.log1p(-p)
    total = math.lgamma(n + 1)
    return [
        math.exp(total - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_p + (n - k) * log_q)
        for k in range(n + 1)
    ]
