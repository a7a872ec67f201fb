"""Convert a metric to its model's units, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core import Prediction

LEAST_NOISE = 0.003
"""The least error of a window: drift between windows is not in its standard error."""

MOST_EXPONENT = 300.0
"""The largest distance of a metric from its reference, in log units: exp of more overflows."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The units of a metric in its model: relative to `reference`, as a logarithm if `log` is set.

    Metrics with a value at or below zero are differences in units of `unit` instead.
    """

    reference: float
    log: bool
    unit: float = 1.0

    @classmethod
    def of(cls, reference: float, values: Sequence[float], limits: Sequence[float] = ()) -> Scale:
        """Return the scale for a metric's values, its reference (the baseline's value) and its limits."""
        if reference > 0.0 and all(v > 0.0 for v in (*values, *limits)):
            return cls(reference, True)
        spread = max((abs(v - reference) for v in values), default=0.0)
        return cls(reference, False, max(spread, abs(reference)) or 1.0)

    @property
    def share(self) -> float:
        """One of the model's units as an approximate share of the reference."""
        return 1.0 if self.log or self.reference == 0.0 else self.unit / abs(self.reference)

    def place(self, value: float) -> float:
        """Return a value of the metric in the model's units."""
        if self.log:
            return math.log(value / self.reference)
        return (value - self.reference) / self.unit

    def width(self, mean: float, stderr: float) -> float:
        """Return a standard error in the model's units, never below the floor."""
        return max(stderr / (mean if self.log else self.unit), LEAST_NOISE)

    def prediction(self, mean: float, sd: float) -> Prediction:
        """Return the model's mean and deviation as those of the metric, in its own unit."""
        if not self.log:
            return Prediction(self.reference + self.unit * mean, self.unit * sd)
        variance = min(sd * sd, MOST_EXPONENT)
        expected = self.reference * math.exp(min(mean + variance / 2.0, MOST_EXPONENT))
        return Prediction(expected, expected * math.sqrt(math.expm1(variance)), lognormal=True)
