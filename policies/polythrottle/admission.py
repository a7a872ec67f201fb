"""Admission of fine-tuning beside inference: only where the predicted latency keeps the SLO.

After PolyThrottle (arXiv 2310.19991, section 6, appendices C and D). From the paper: inference
latency beside fine-tuning is linear in five features, the FLOPs and the arithmetic intensities
(FLOPs per byte moved) of both and the batch size, plus a constant; this holds at stable clocks; a
request runs only if the prediction meets the SLO; requests run one after another.

The paper does not publish the method of the fit, the number of samples, the error of the prediction, or
the meaning of "meets" under uncertainty. Our own choices: ordinary least squares without a ridge over
the study's own windows; a prediction bound instead of the mean, since later work measured errors of
such models above one half (arXiv 2512.18725); no prediction where a feature is beyond its observed
range (a new combination of features is the purpose of the model); and no prediction from fewer than
three windows more than there are coefficients to determine. Without a prediction there is no
admission.

Left out: the change of clocks once fine-tuning runs (not public either).

    answer = admit(windows, Mix(inference, 8, Demand(197.0, 40.0)), limit, running=False)
    answer.admitted, answer.why
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.core import (
    Estimate,
    InvalidInput,
    Limit,
    MeasurementError,
    Verdict,
    student_t95,
    weakest,
)

BATCH = "batch_size"

LEAST_FREEDOM = 3
"""The least number of windows beyond the coefficients: with fewer the error itself is a guess."""

SAME = 1e-9
"""The tolerance for equal features, relative to the greatest one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of one step of a job: 10⁹ operations, and operations per byte moved.

    For an inference a step is one item, for fine-tuning one optimiser step; zeros for no job.

    Raises:
        InvalidInput: a figure that is negative or not finite.
    """

    gflop: float = 0.0
    flop_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(x) and x >= 0.0 for x in (self.gflop, self.flop_per_byte)):
            raise InvalidInput(f"a demand needs finite numbers >= 0, not {self}")


NOTHING = Demand()


@dataclass(frozen=True, slots=True)
class Mix:
    """An inference in batches, and the job that runs beside it."""

    inference: Demand
    batch: int
    beside: Demand = NOTHING

    @property
    def features(self) -> tuple[float, ...]:
        """The constant and the five features of the paper."""
        own, other = self.inference, self.beside
        return (
            1.0, own.gflop, own.flop_per_byte, other.gflop, other.flop_per_byte, float(self.batch)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MixWindow:
    """The latency of a mix in one window."""

    mix: Mix
    latency: Estimate


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether fine-tuning may start now, the reason, and the predicted latency if there is one."""

    admitted: bool
    why: str
    predicted: Estimate | None = None


def predict(windows: Sequence[MixWindow], mix: Mix) -> Estimate:
    """Return the predicted latency of a window of a mix, with its one-sided 95 % bounds.

    Least squares over the windows. The effects of features that never varied, or only together, are
    separated only as far as the windows allow. The standard error is that of one further window:
    that of the residuals, not below the windows' own error, times √(1 + leverage); Student's t with
    the freedom left.

    Raises:
        MeasurementError: the windows are too few, or too different from this mix, for a prediction.
    """
    if not windows:
        raise MeasurementError("no window has been measured at these clocks")
    rows = np.array([s.mix.features for s in windows])
    scale = rows.max(axis=0)
    scale[scale == 0.0] = 1.0
    rows, features = rows / scale, np.array(mix.features) / scale
    if np.any(features > rows.max(axis=0) + SAME) or np.any(features < rows.min(axis=0) - SAME):
        raise MeasurementError("no window was measured with a mix of this size")
    inverse = np.linalg.pinv(rows, rcond=SAME)
    freedom = len(windows) - int(np.linalg.matrix_rank(rows, tol=SAME))
    if freedom < LEAST_FREEDOM:
        raise MeasurementError(
            f"{len(windows)} windows are too few: {LEAST_FREEDOM - freedom} more are needed"
        )
    if not np.allclose(features @ inverse @ rows, features, atol=1e-6):
        raise MeasurementError("the windows do not vary the features of this mix independently")
    shown = np.array([s.latency.mean for s in windows])
    weights = features @ inverse
    mean = float(weights @ shown)
    residuals = shown - rows @ (inverse @ shown)
    own = sum(s.latency.stderr**2 for s in windows) / len(windows)
    variance = max(float(residuals @ residuals) / freedom, own)
    stderr = math.sqrt(variance * (1.0 + float(weights @ weights)))
    reach = student_t95(freedom) * stderr
    origin = weakest(s.latency.origin for s in windows)
    return Estimate(
        mean, stderr, len(windows), mean - reach, mean + reach, origin, windows[0].latency.scope
    )


def admit(windows: Sequence[MixWindow], mix: Mix, limit: Limit, *, running: bool) -> Admission:
    """Return whether a fine-tuning request may start beside the inference now.

    It may only while no other runs, and only if the upper bound of the predicted latency keeps the limit.
    """
    if running:
        return Admission(False, "another fine-tuning request is running; wait for its end")
    try:
        predicted = predict(windows, mix)
    except MeasurementError as unknown:
        return Admission(False, f"the latency next to it cannot be predicted: {unknown.message}")
    words = (
        f"{limit.metric} is predicted at {predicted.mean:.4g}, at most "
        f"{predicted.high:.4g}, next to it; the limit is {limit.value:.4g}"
    )
    return Admission(limit.verdict(predicted) is Verdict.FEASIBLE, words, predicted)
