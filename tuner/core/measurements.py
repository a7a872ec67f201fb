"""Estimates and measurements: numbers with their doubt, their origin and their circumstances."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tuner.core.errors import MeasurementError

Z95 = 1.6448536269514722
"""One-sided 95 % point of the normal distribution."""

NEVER_NEGATIVE = ("_j", "_w", "_s", "_ms", "_per_s")
"""Units whose metrics cannot be below zero: joules, watts, times, rates."""


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
    """A metric somebody can measure here. The unit is in the name: `energy_j` is joules per item."""

    name: str
    origin: Origin = Origin.MEASURED
    scope: Scope = Scope.BOARD


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its doubt.

    `low` and `high` are one-sided 95 % bounds; `high` is infinite where the sample was too small to
    bound it. `n` is the number of independent observations behind the mean.

    Raises:
        MeasurementError: not a number, a negative spread, or bounds that do not enclose the mean.
    """

    mean: float
    stderr: float = 0.0
    n: int = 1
    low: float = -math.inf
    high: float = math.inf
    origin: Origin = Origin.MEASURED
    scope: Scope = Scope.BOARD

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise MeasurementError(f"an estimate cannot have the mean {self.mean}")
        if not (math.isfinite(self.stderr) and self.stderr >= 0.0):
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
    """The load a window was measured under.

    `arrival_rate_per_s` is what was offered (closed loop: what the callers managed to send),
    `completed` the items that came back, `failed` those that did not, `utilisation` the busy share
    of the machine's cores where it is known.

    Raises:
        MeasurementError: a rate or share that is not finite, or anything negative.
    """

    arrival_rate_per_s: float = 0.0
    completed: int = 0
    failed: int = 0
    utilisation: float | None = None

    def __post_init__(self) -> None:
        rates = (self.arrival_rate_per_s, self.utilisation or 0.0)
        counts = (self.completed, self.failed)
        if not all(math.isfinite(r) and r >= 0.0 for r in rates) or min(counts) < 0:
            raise MeasurementError(f"a load cannot be {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one window showed: an estimate per metric, and the circumstances that qualify them.

    `seconds` is the window's length on the device's clock, `overhead_s` what applying, settling and
    warming up took beside it. `throttled` names the throttle reasons seen; `foreign` is the share of
    the machine that others used.

    Raises:
        MeasurementError: a metric whose unit forbids it is negative, the window has no length, or
            its overhead or foreign share is not finite.
    """

    estimates: Mapping[str, Estimate]
    started_at: datetime
    seconds: float
    overhead_s: float = 0.0
    load: Load = Load()
    throttled: tuple[str, ...] = ()
    foreign: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    """Metric name to where it came from, in words: `latency_p99_ms` → `our load generator`."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise MeasurementError(f"a window cannot be {self.seconds} seconds long")
        if not (math.isfinite(self.overhead_s) and math.isfinite(self.foreign)):
            raise MeasurementError(
                f"a window cannot have the overhead {self.overhead_s} s and the foreign share "
                f"{self.foreign}"
            )
        for name, estimate in self.estimates.items():
            if estimate.mean < 0.0 and name.endswith(NEVER_NEGATIVE):
                raise MeasurementError(
                    f"{name} = {estimate.mean} is absurd: the unit cannot be negative",
                    hint="check the meter; the number was not stored",
                )


def pooled(estimates: Iterable[Estimate]) -> Estimate:
    """Return several estimates of one quantity as one, weighted by their precision.

    Means are weighted by 1/stderr² (equally where one has no spread at all). The pooled standard
    error is the larger of the one the weights imply and the one the scatter between windows shows,
    so that window-to-window drift is not averaged away. Bounds keep the distance the single bounds
    had, scaled by the gain in precision; an unbounded one stays out of the bound as long as another
    window has a bound.

    Raises:
        MeasurementError: there is nothing to pool.
    """
    items = list(estimates)
    if not items:
        raise MeasurementError("there is no estimate to pool")
    if len(items) == 1:
        return items[0]
    spread_known = all(e.stderr > 0.0 for e in items)
    weights = [1.0 / e.stderr**2 if spread_known else 1.0 for e in items]
    total = math.fsum(weights)
    mean = math.fsum(w * e.mean for w, e in zip(weights, items, strict=True)) / total
    implied = math.sqrt(1.0 / total) if spread_known else 0.0
    count = len(items)
    scatter = math.sqrt(
        math.fsum(w * (e.mean - mean) ** 2 for w, e in zip(weights, items, strict=True))
        / total
        / (count - 1)
    )
    stderr = max(implied, scatter)
    above = [e.high - e.mean for e in items if math.isfinite(e.high)]
    below = [e.mean - e.low for e in items if math.isfinite(e.low)]
    return Estimate(
        mean,
        stderr,
        sum(e.n for e in items),
        mean - max(max(below) / math.sqrt(len(below)), Z95 * scatter) if below else -math.inf,
        mean + max(max(above) / math.sqrt(len(above)), Z95 * scatter) if above else math.inf,
        items[0].origin,
        items[0].scope,
    )
