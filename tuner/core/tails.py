"""Quantiles with bounds by order statistics, without an assumption on the distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from tuner.core.errors import MeasurementError
from tuner.core.measurements import Estimate, Origin, Scope, weakest

__all__ = ["bucketed_quantile", "pooled_tail", "quantile_estimate"]

CONFIDENCE = 0.95


def quantile_estimate(
    samples: Sequence[float],
    quantile: float,
    *,
    together: float = 1.0,
    origin: Origin = Origin.MEASURED,
    scope: Scope = Scope.SERVICE,
) -> Estimate:
    """Estimate a quantile with one-sided 95 % bounds by order statistics.

    The k-th smallest of n samples is below the quantile with probability P(Binomial(n, q) ≥ k). The upper
    bound is the smallest sample for which this probability is at most 5 %; it is infinite if it is larger
    even for the largest sample (a p99 of fewer than 299 samples). The standard error is half the distance
    between the two order statistics one binomial deviation below and above the quantile's rank.

    `together` is the mean number of samples that share one draw, as the requests of a batch share its time:
    n samples then count as n / together, in the bounds and in the estimate's `n`.

    Raises:
        MeasurementError: there is no sample, or a sample is not finite.
    """
    if not samples:
        raise MeasurementError("a quantile needs at least one sample")
    ordered = sorted(samples)
    if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
        raise MeasurementError("a latency sample is not a finite number")
    point = _at(ordered, len(ordered) * quantile)
    n = max(1, int(len(ordered) / max(1.0, together)))
    share = len(ordered) / n
    deviation = math.sqrt(n * quantile * (1.0 - quantile))
    upper = _at(ordered, share * (n * quantile + deviation))
    lower = _at(ordered, share * (n * quantile - deviation))
    high_at, low_at = _bound_ranks(n, quantile)
    return Estimate(
        point,
        (upper - lower) / 2.0,
        n,
        _at(ordered, share * low_at + 1.0) if low_at is not None else -math.inf,
        _at(ordered, share * (high_at + 1.0)) if high_at is not None else math.inf,
        origin,
        scope,
    )


def bucketed_quantile(edges: Sequence[float], counts: Sequence[int], quantile: float) -> Estimate:
    """Estimate a quantile from a histogram, with bounds that hold for any place of a sample in its bucket.

    `edges` are the buckets' upper edges, ascending, the last infinite; `counts` are the samples in each
    bucket. Samples are not negative. The bounds are those of `quantile_estimate`, widened to the edges of
    their buckets; a bound is infinite if its sample is beyond the last finite edge. The mean is linear
    within its bucket, as in Prometheus' `histogram_quantile`. The standard error spans the buckets one
    binomial deviation below and above: our choice, too wide rather than too narrow.

    Raises:
        MeasurementError: there is no sample, or the edges and counts do not make a histogram.
    """
    rising = all(a < b for a, b in pairwise(edges)) and len(edges) == len(counts)
    if not rising or not edges or edges[-1] != math.inf or min(counts) < 0:
        raise MeasurementError("not valid histogram buckets")
    n = sum(counts)
    if n == 0:
        raise MeasurementError("a quantile needs at least one sample")
    floors = [0.0, *edges[:-1]]
    upto = list(accumulate(counts))

    def bucket(rank: float) -> int:
        """Return the index of the bucket of the sample with a one-based rank."""
        needed = min(n, max(1, math.ceil(rank - 1e-9)))
        return next(k for k, count in enumerate(upto) if count >= needed)

    deviation = math.sqrt(n * quantile * (1.0 - quantile))
    at = bucket(n * quantile)
    within = (n * quantile - (upto[at] - counts[at])) / counts[at]
    end = edges[at] if math.isfinite(edges[at]) else floors[at]
    upper, lower = bucket(n * quantile + deviation), bucket(n * quantile - deviation)
    top = edges[upper] if math.isfinite(edges[upper]) else floors[upper]
    high_at, low_at = _bound_ranks(n, quantile)
    return Estimate(
        floors[at] + (end - floors[at]) * min(1.0, max(0.0, within)),
        (top - floors[lower]) / 2.0,
        n,
        floors[bucket(low_at + 1)] if low_at is not None else -math.inf,
        edges[bucket(high_at + 1)] if high_at is not None else math.inf,
        scope=Scope.SERVICE,
    )


def pooled_tail(estimates: Sequence[Estimate]) -> Estimate:
    """Return several windows' estimates of one quantile as one.

    The mean is weighted by n, never by the apparent spread: a window that missed the slow requests looks
    precise and is wrong. The bound is the j-th smallest of the windows' 95 % bounds. j is the least number
    for which the probability that j of k independent bounds fail is at most 5 %: j is 2 for two to seven
    windows, so that a second window makes the bound safer and a third one narrower.

    Raises:
        MeasurementError: there is no estimate.
    """
    if not estimates:
        raise MeasurementError("no estimate to pool")
    if len(estimates) == 1:
        return estimates[0]
    total = sum(e.n for e in estimates)
    mean = math.fsum(e.n * e.mean for e in estimates) / total
    rank = _safe_rank(len(estimates)) - 1
    high = sorted(e.high for e in estimates)[rank]
    low = sorted((e.low for e in estimates), reverse=True)[rank]
    within = math.sqrt(math.fsum((e.n * e.stderr) ** 2 for e in estimates)) / total
    scatter = math.fsum(e.n * (e.mean - mean) ** 2 for e in estimates) / total
    return Estimate(
        mean,
        max(within, math.sqrt(scatter / (len(estimates) - 1))),
        total,
        min(low, mean),
        max(high, mean),
        weakest(e.origin for e in estimates),
        estimates[0].scope,
    )


def _safe_rank(windows: int) -> int:
    """Return the least j with P(Binomial(windows, 0.05) ≥ j) ≤ 0.05."""
    above = 1.0
    for j, mass in enumerate(_binomial(windows, 1.0 - CONFIDENCE)):
        if above <= 1.0 - CONFIDENCE:
            return j
        above -= mass
    return windows


def _at(ordered: Sequence[float], rank: float) -> float:
    """Return the sample at a one-based rank; a fractional rank is rounded up, and kept in range."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(rank - 1e-9) - 1))]


def _bound_ranks(n: int, quantile: float) -> tuple[int | None, int | None]:
    """Return the zero-based ranks of the upper and the lower 95 % bound; None if n is too small.

    The sample at zero-based rank r exceeds the quantile if at most r samples lie below the quantile. So the
    upper bound is the least r with P(Binomial(n, q) ≤ r) ≥ 0.95; the lower bound mirrors it. Only ranks
    within six deviations of the quantile are computed: lower ones have a probability under 1e-6.
    """
    upper: int | None = None
    lower: int | None = None
    cumulative = 0.0
    reach = 6.0 * math.sqrt(n * quantile * (1.0 - quantile)) + 6.0
    for below in range(max(0, math.floor(n * quantile - reach)), n + 1):
        if cumulative <= 1.0 - CONFIDENCE:
            lower = below - 1 if below > 0 else None
        cumulative += _binomial_mass(n, quantile, below)
        if upper is None and cumulative >= CONFIDENCE and below < n:
            upper = below
    return upper, lower


def _binomial(n: int, p: float) -> list[float]:
    """Return the probabilities of 0 to n successes."""
    return [_binomial_mass(n, p, k) for k in range(n + 1)]


def _binomial_mass(n: int, p: float, k: int) -> float:
    """Return the probability of k successes, by logarithms, so that it does not underflow for large n."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))
