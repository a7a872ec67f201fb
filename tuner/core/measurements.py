"""Estimates and measurements: numbers with their uncertainty, origin and circumstances."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tuner.compat import StrEnum
from tuner.core.errors import MeasurementError
from tuner.core.plans import Context
from tuner.core.quantities import STANDARD, UNDECLARED, Quantities, Quantity, quantity_of, standard
from tuner.core.samples import WindowSamples
from tuner.core.units import Boundary, Count, Finite, Seconds, Span
from tuner.errors import InvalidInput

__all__ = [
    "Estimate",
    "FOREIGN_SHARE",
    "Load",
    "Measurement",
    "Metric",
    "Origin",
    "PRIOR_WINDOWS",
    "Scope",
    "Z95",
    "pooled",
    "ratio_estimate",
    "refuse_negative",
    "student_t95",
    "weakest",
]

Z95 = 1.6448536269514722
"""One-sided 95 % point of the normal distribution."""

UNSAID = Quantity("unsaid")
"""The placeholder for the quantity of a standard metric until its name is looked up."""

ABSURD = 1e100
"""No meter reads this much, so its sender is broken. The squares of smaller numbers are finite."""


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
    quantity: Quantity = UNSAID

    def __post_init__(self) -> None:
        if self.quantity != UNSAID:
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


@dataclass(frozen=True, slots=True)
class Load:
    """The load within a window.

    `completed` is the number of items that were completed, `failed` of those that were not. `utilisation`
    is the busy share of the machine's cores, None if unavailable.

    Raises:
        MeasurementError: the share is not finite, or a number is negative.
    """

    completed: Count = 0
    failed: Count = 0
    utilisation: float | None = None

    def __post_init__(self) -> None:
        share = self.utilisation or 0.0
        if not (math.isfinite(share) and min(share, self.completed, self.failed) >= 0):
            raise MeasurementError(f"not a valid load: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The results of one window: an estimate per metric, and the circumstances that qualify them.

    `context` is the load as far as it does not depend on the setting. It is `arrival_rate_per_s` if
    requests arrive independently of the answers; under our closed loop it is `requests_in_system`, the
    number of callers; empty if unknown. `seconds` is the window's length on the device's clock,
    `overhead_s` the time for applying, settling and warming up beside it. `throttled` names the observed
    throttle reasons; `foreign` is the share of the machine that other processes used.

    Raises:
        MeasurementError: a metric whose unit forbids it is negative, the window has no length, or
            its overhead, foreign share or context is not finite.
    """

    estimates: Mapping[str, Estimate]
    started_at: datetime
    seconds: Seconds
    overhead_s: Span = 0.0
    load: Load = Load()
    context: Context = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    foreign: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each metric, in words: `latency_p99_ms` → `our load generator`.

    Other names are subjects of notes: `foreign_load` → `unknown: NVML lists no process`.
    """
    samples: WindowSamples | None = field(default=None, repr=False)
    """The raw values, of windows that are kept as evidence; an older agent sends none."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise MeasurementError(f"a window cannot be {self.seconds} seconds long")
        if not all(math.isfinite(x) and x >= 0.0 for x in (self.overhead_s, self.foreign)):
            raise MeasurementError(
                f"overhead_s = {self.overhead_s} or foreign = {self.foreign} cannot be right"
            )
        if not all(map(math.isfinite, self.context.values())):
            raise MeasurementError(f"a window cannot be measured at {dict(self.context)}")
        refuse_negative(self.estimates)


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


FOREIGN_SHARE = 0.15
"""The default limit on the share of the machine that other processes use in a window: our choice."""
LEAST_BATCHES = 3
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
    if count < LEAST_BATCHES or below <= 0.0:
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
