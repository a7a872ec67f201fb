"""Bayesian least squares for a nonlinear model: Gauss–Newton with Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PASSES = 8
STEP = 1e-4
FARTHEST = 1.0
"""The largest change of a weight in one pass."""


@dataclass(frozen=True)
class Prior:
    """The prior of the weights: a normal distribution of each."""

    mean: Array
    sd: Array


@dataclass(frozen=True)
class Weights:
    """A normal distribution of a model's weights."""

    mean: Array
    cov: Array

    def drawn(self, rng: np.random.Generator, doubt: float, count: int) -> Array:
        """Return `count` draws, one per row; `doubt` is a factor on the deviations."""
        return rng.multivariate_normal(
            self.mean, doubt**2 * self.cov, size=count, method="cholesky"
        )


def fitted(
    predict: Callable[[Array], Array], observed: Array, noise: Array, prior: Prior
) -> Weights:
    """Return the weights' posterior after some values, with `noise` as their least deviation.

    `predict` returns a row of values for each row of weights.
    """
    precision = np.diag(prior.sd**-2.0)
    weights, cov = prior.mean.copy(), np.diag(prior.sd**2.0)
    if not len(observed):
        return Weights(weights, cov)
    scale = 1.0
    steps = STEP * np.eye(len(weights))
    for _ in range(PASSES):
        predicted = predict(np.vstack([weights, weights + steps]))
        left = (observed - predicted[0]) / noise
        scale = max(1.0, float(np.sqrt(np.mean(left**2))))
        slopes = (predicted[1:] - predicted[0]).T / STEP / (noise * scale)[:, None]
        cov = np.asarray(np.linalg.inv(precision + slopes.T @ slopes))
        step = cov @ (slopes.T @ (left / scale) + precision @ (prior.mean - weights))
        weights = np.asarray(weights + step / max(1.0, float(np.abs(step).max()) / FARTHEST))
    return Weights(weights, (cov + cov.T) / 2.0)
