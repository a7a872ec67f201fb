"""Estimates and measurements: numbers with their doubt, their origin and their circumstances."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tuner.compat import StrEnum
from tuner.core.errors import MeasurementError
from tuner.core.plans import Context
from tuner.core.quantities import STANDARD, UNDECLARED, Quantities, Quantity, quantity_of, standard
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
"""Represents the quantity of a standard metric until its name was looked up."""

ABSURD = 1e100
"""No meter of anything reads so much: its sender is broken, and its square is not finite."""


class Origin(StrEnum):
    """Where a number comes from, from the strongest to the weakest claim."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    SIMULATED = "simulated"
    REPLAYED = "replayed"


class Scope(StrEnum):
    """What a number is about."""

    BOARD = "board"
    MODULE = "module"
    RAIL = "rail"
    PROCESS = "process"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that is measured here, and its meaning: a standard name says that by itself.

    Raises:
        InvalidInput: it is no standard metric and its quantity is not declared.
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
    """A number with its doubt.

    `low` and `high` are one-sided 95 % bounds; `high` is infinite where the sample was too small to
    bound it. `n` is the number of independent observations behind the mean.

    Raises:
        MeasurementError: not a number, an absurd one, a negative spread, or bounds that do not enclose
            the mean.
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


@dataclass(frozen=True, slots=True)
class Load:
    """What the load came to within a window.

    `completed` are the items that came back, `failed` those that did not, `utilisation` is the busy
    share of the machine's cores where available.

    Raises:
        MeasurementError: a share that is not finite, or anything negative.
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
    """What one window showed: an estimate per metric, and the circumstances that qualify them.

    `context` is the load as far as it does not depend on the setting: `arrival_rate_per_s` where requests
    arrive at a rate of their own, `requests_in_system` under our closed loop of the given number of
    callers; empty where unknown. `seconds` is the window's length on the device's clock, `overhead_s` what
    applying, settling and warming up took beside it. `throttled` names the throttle reasons seen; `foreign`
    is the share of the machine that others used.

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
    """Metric name to where it came from, in words: `latency_p99_ms` → `our load generator`.

    Other names are subjects of notes: `foreign_load` → `unknown: NVML lists no process`.
    """

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
    """Return quietly unless a quantity that has no sign is below zero. Raises MeasurementError."""
    for name, estimate in estimates.items():
        if estimate.mean < 0.0 and not quantity_of(name, declared).signed:
            raise MeasurementError(
                f"{name} = {estimate.mean} is negative",
                hint="check the meter; the number was not stored",
            )


PRIOR_WINDOWS = 3
"""How many windows' worth the spread within windows counts against the scatter between them."""


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """Return several estimates of one mean as one, weighted by their precision.

    Weights are 1/stderr² (equal where one has no spread at all). The variance of the pool blends what
    the weights imply, worth three windows, with the scatter seen between windows; the bounds use
    Student's t with the freedom both have together. An unbounded member leaves that side unbounded
    only where all are. The pool claims the weakest origin among its members.

    Raises:
        MeasurementError: there is nothing to pool.
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
    """Return the weakest claim among several origins: a mixture is no better than its worst part."""
    order = list(Origin)
    return max(origins, key=order.index)


def student_t95(freedom: int) -> float:
    """Return the one-sided 95 % point of Student's t, to about 1 % (exact for 1 and 2 degrees).

    From three degrees on by the expansion in 1/freedom of Abramowitz and Stegun 26.7.5.
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
"""The share of the machine that others may use in a window by default: our choice."""
LEAST_BATCHES = 3
"""A standard error from fewer batches would be a guess."""


def ratio_estimate(
    steps: Sequence[tuple[float, float]],
    scale: float,
    metric: Metric,
    seconds: Sequence[float] = (),
) -> Estimate | None:
    """Return `scale` × Σ numerators / Σ denominators over batches; None where unknown.

    The standard error is the ratio estimator's (Cochran, Sampling Techniques, §6.4), taken over the
    batches that make up the window; the bounds use Student's t for that many batches. With the
    `seconds` of the batches it is the error at the window's own rate of the denominator: the part
    that is linear in the rate is no error (§7.3).
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
