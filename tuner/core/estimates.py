"""Estimates: numbers with their uncertainty and origin, and the bounds of quantiles.

The bounds are by order statistics, without an assumption on the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tuner.compat import StrEnum
from tuner.core.errors import MeasurementError
from tuner.core.quantities import (
    STANDARD,
    UNDECLARED,
    Boundary,
    Count,
    Finite,
    Quantities,
    Quantity,
    quantity_of,
    standard,
)
from tuner.errors import InvalidInput

Z95 = 1.6448536269514722
"""One-sided 95 % point of the normal distribution."""
_UNSAID = Quantity("unsaid")
"""The placeholder for the quantity of a standard metric until its name is looked up."""
ABSURD = 1e100
"""No meter reads this much, so its sender is broken. The squares of smaller numbers are finite."""
_CONFIDENCE = 0.95


class Origin(StrEnum):
    """The origin of a number, from the strongest to the weakest claim."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    SIMULATED = "simulated"
    REPLAYED = "replayed"


class Scope(StrEnum):
    """The part of the machine, or of the software on it, that a number covers."""

    BOARD = "board"
    MODULE = "module"
    RAIL = "rail"
    PROCESS = "process"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a device measures, and its quantity; a standard metric needs no declared quantity.

    Raises:
        InvalidInput: the name is not standard, and no quantity is declared.
    """

    name: str
    origin: Origin = Origin.MEASURED
    scope: Scope = Scope.BOARD
    quantity: Quantity = _UNSAID

    def __post_init__(self) -> None:
        if self.quantity != _UNSAID:
            return
        quantity = standard(self.name)
        if quantity is None:
            raise InvalidInput(
                f"the metric {self.name} has no declared quantity",
                hint="declare its quantity (unit, and whether less or more is better) "
                f"where the metric is defined; known metrics: {', '.join(STANDARD)}",
            )
        object.__setattr__(self, "quantity", quantity)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty.

    `low` and `high` are one-sided 95 % bounds; `high` is infinite if the sample was too small to bound it.
    `n` is the number of independent observations behind the mean.

    Raises:
        MeasurementError: the mean or the standard error is not a number or is absurdly large, the standard
            error is negative, there is no observation, or the bounds do not enclose the mean.
    """

    mean: Finite
    stderr: Finite = 0.0
    n: Count = 1
    low: Boundary = -math.inf
    high: Boundary = math.inf
    origin: Origin = Origin.MEASURED
    scope: Scope = Scope.BOARD

    def __post_init__(self) -> None:
        if not abs(self.mean) < ABSURD:
            raise MeasurementError(f"an estimate cannot have the mean {self.mean}")
        if not 0.0 <= self.stderr < ABSURD:
            raise MeasurementError(f"an estimate cannot have the standard error {self.stderr}")
        if self.n < 1:
            raise MeasurementError(f"an estimate needs at least one observation, not {self.n}")
        if not self.low <= self.mean <= self.high:
            raise MeasurementError(
                f"the bounds {self.low} … {self.high} do not enclose the mean {self.mean}"
            )

    @classmethod
    def of_mean(
        cls,
        mean: float,
        stderr: float,
        n: int = 1,
        *,
        origin: Origin = Origin.MEASURED,
        scope: Scope = Scope.BOARD,
    ) -> Estimate:
        """Return an estimate whose bounds are the mean ± 1.645 standard errors."""
        return cls(mean, stderr, n, mean - Z95 * stderr, mean + Z95 * stderr, origin, scope)

    def widened(self, doubt: float) -> Estimate:
        """Return the estimate with the further standard error `doubt`, which all its samples share."""
        return replace(
            self,
            stderr=math.hypot(self.stderr, doubt),
            low=self.mean - math.hypot(self.mean - self.low, Z95 * doubt),
            high=self.mean + math.hypot(self.high - self.mean, Z95 * doubt),
        )


def refuse_negative(estimates: Mapping[str, Estimate], declared: Quantities = UNDECLARED) -> None:
    """Raise MeasurementError if the mean of a quantity without a sign is below zero."""
    for name, estimate in estimates.items():
        if estimate.mean < 0.0 and not quantity_of(name, declared).signed:
            raise MeasurementError(
                f"{name} = {estimate.mean} is negative",
                hint="check the meter; the number was not stored",
            )


PRIOR_WINDOWS = 3
"""The weight, in windows, of the spread within windows against the scatter between them."""


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """Return several estimates of one mean as one, weighted by their precision.

    The weights are 1/stderr² (equal if one estimate has a standard error of 0). The variance of the pool
    blends the variance that the weights imply, worth three windows, with the scatter between windows. The
    bounds use Student's t with the degrees of freedom of both together. A side of the pool is unbounded
    only if it is unbounded in every estimate. The pool has the weakest origin of its members.

    Raises:
        MeasurementError: there is no estimate.
    """
    if not estimates:
        raise MeasurementError("no estimate to pool")
    if len(estimates) == 1:
        return estimates[0]
    least = min(e.stderr for e in estimates)
    weights = [(least / e.stderr) ** 2 if least > 0.0 else 1.0 for e in estimates]
    total = math.fsum(weights)
    mean = math.fsum(w * e.mean for w, e in zip(weights, estimates, strict=True)) / total
    implied = least**2 / total
    freedom = len(estimates) - 1
    squares = math.fsum(w * (e.mean - mean) ** 2 for w, e in zip(weights, estimates, strict=True))
    scatter = squares / total / freedom
    variance = (PRIOR_WINDOWS * implied + freedom * scatter) / (PRIOR_WINDOWS + freedom)
    stderr = math.sqrt(max(variance, implied))
    reach = student_t95(PRIOR_WINDOWS + freedom) * stderr
    return Estimate(
        mean,
        stderr,
        sum(e.n for e in estimates),
        mean - reach if any(math.isfinite(e.low) for e in estimates) else -math.inf,
        mean + reach if any(math.isfinite(e.high) for e in estimates) else math.inf,
        weakest(e.origin for e in estimates),
        estimates[0].scope,
    )


def weakest(origins: Iterable[Origin]) -> Origin:
    """Return the weakest of several origins: a mixture counts as its worst part."""
    order = list(Origin)
    return max(origins, key=order.index)


def student_t95(freedom: int) -> float:
    """Return the one-sided 95 % point of Student's t, to about 1 % (exact for 1 and 2 degrees).

    From three degrees on it is the expansion in 1/freedom of Abramowitz and Stegun 26.7.5.
    """
    if freedom < 1:
        return math.inf
    if freedom == 1:
        return 6.3138
    if freedom == 2:
        return 2.9200
    z, v = Z95, float(freedom)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3


_LEAST_BATCHES = 3
"""A standard error from fewer batches would be a guess."""


def ratio_estimate(
    steps: Sequence[tuple[float, float]],
    scale: float,
    metric: Metric,
    seconds: Sequence[float] = (),
) -> Estimate | None:
    """Return `scale` × Σ numerators / Σ denominators over batches; None with fewer than three batches.

    It is None without a positive denominator, too. The standard error is the ratio estimator's (Cochran,
    Sampling Techniques, §6.4) over the batches of the window; the bounds use Student's t for their number.
    With the `seconds` of the batches it is the error at the window's rate of the denominator: deviations
    that are linear in the rate do not count as error (§7.3).
    """
    count = len(steps)
    above = math.fsum(n for n, _ in steps)
    below = math.fsum(d for _, d in steps)
    if count < _LEAST_BATCHES or below <= 0.0:
        return None
    mean, freedom = above / below, count - 1
    apart = [n - mean * d for n, d in steps]
    if seconds:
        each = math.fsum(seconds) / below
        slack = [s - each * d for s, (_, d) in zip(seconds, steps, strict=True)]
        if (spread := math.fsum(s * s for s in slack)) > 0.0:
            slope = math.fsum(s * a for s, a in zip(slack, apart, strict=True)) / spread
            apart = [a - slope * s for s, a in zip(slack, apart, strict=True)]
            freedom -= 1
    stderr = math.sqrt(math.fsum(a * a for a in apart) * count / freedom) / below
    reach = student_t95(freedom) * stderr
    return Estimate(
        scale * mean,
        scale * stderr,
        count,
        scale * (mean - reach),
        scale * (mean + reach),
        metric.origin,
        metric.scope,
    )


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
    if len(edges) == 1:
        raise MeasurementError(
            "a histogram has the bucket +Inf alone, so its quantiles are unknown",
            hint="declare its buckets: a native histogram has none in Prometheus' text",
        )
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
    for j in range(windows + 1):
        if above <= 1.0 - _CONFIDENCE:
            return j
        above -= _binomial_mass(windows, 1.0 - _CONFIDENCE, j)
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
        if cumulative <= 1.0 - _CONFIDENCE:
            lower = below - 1 if below > 0 else None
        cumulative += _binomial_mass(n, quantile, below)
        if upper is None and cumulative >= _CONFIDENCE and below < n:
            upper = below
    return upper, lower


def _binomial_mass(n: int, p: float, k: int) -> float:
    """Return the probability of k successes, by logarithms, so that it does not underflow for large n."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))
