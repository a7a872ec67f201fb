"""The error over a training's rounds: a curve that falls by a share of what is left above a floor.

That share, per round, is log-linear in participants (K), batch size (B) and local work (E, epochs or
steps), and changes with how much is left. The whole course is fitted at once, as single rounds are noisy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.fedgpo.federation import Round
from policies.fedgpo.fitting import Array, Prior, Weights, fitted

K_SD, E_SD, B_MEAN, B_SD = 0.10, 0.18, -0.40, 0.12
"""What a round's share rises by with K, B and E: of made tasks, none of which is judged."""
USUAL_LABELS = 0.7
"""The share of all labels that a client holds, where nobody tells it."""
STAGE, STAGE_SD, STAGE_E_SD, STAGE_K_SD = 0.0, 0.3, 0.12, 0.08
RATE, RATE_SD = 0.1, 1.0
FLOOR_OF_GOAL, FLOOR_SD = 0.7, 0.3
"""The floor, as a share of the error that the goal allows."""
OPEN_FLOOR, OPEN_FLOOR_SD = 0.03, 0.7
NOISE = 0.02
LEAST_LEFT = 1e-3
REFERENCE = 0.3
POINTS = 8
FIRST_ACCURACY = 0.1
JUMP = 0.15
"""A round that begins so far from where the last one ended begins another training."""


@dataclass(frozen=True)
class LogWork:
    """What a round does, in logarithms: participants, batch size and local work over usual ones."""

    k: float
    b: float
    e: float


@dataclass(frozen=True)
class ErrorCurve:
    """The curve's weights by rounds that were seen, and where the training stands by them."""

    weights: Weights
    works: tuple[LogWork, ...]
    starts: tuple[float | None, ...]

    @classmethod
    def of(
        cls,
        rounds: Sequence[Round],
        works: Sequence[LogWork],
        goal: float | None,
        labels: float = USUAL_LABELS,
    ) -> ErrorCurve:
        """Return the curve of some rounds towards an accuracy, where one is wanted.

        `labels` is the share of all labels that a client holds in the mean.
        """
        starts = _starts(rounds)
        blank = cls(Weights(np.zeros(0), np.zeros((0, 0))), tuple(works), starts)
        seen = np.array([r.accuracy for r in rounds])
        noise = np.full(len(rounds), NOISE)
        found = fitted(lambda w: blank.course(w)[0], seen, noise, _prior(goal, labels))
        return cls(found, blank.works, starts)

    def course(self, weights: Array) -> tuple[Array, Array]:
        """Return the accuracies after each round, and what is left at the end, for each row of weights."""
        floor = np.exp(weights[:, 7])
        left = np.maximum(LEAST_LEFT, 1.0 - FIRST_ACCURACY - floor)
        found = np.empty((len(weights), len(self.works)))
        for i, (work, start) in enumerate(zip(self.works, self.starts, strict=True)):
            if start is not None:
                left = np.maximum(LEAST_LEFT, 1.0 - start - floor)
            left = left * np.exp(-_rate(weights, work, left))
            found[:, i] = 1.0 - floor - left
        return found, left

    def rounds_to(self, weights: Array, left: Array, goal: float | None, work: LogWork) -> Array:
        """Return how many rounds a goal takes from here; without one, the rounds to halve what is left."""
        floor = np.exp(weights[:, 7])
        end = left / 2.0
        if goal is not None:
            end = np.maximum(0.1 * (1.0 - goal), 1.0 - goal - floor)
        ahead = np.maximum(np.log(left / end), 0.1)
        shares = (np.arange(POINTS) + 0.5) / POINTS
        rates = [_rate(weights, work, end * np.exp(ahead * share)) for share in shares]
        return np.asarray(ahead * np.mean([1.0 / rate for rate in rates], axis=0))


def _rate(weights: Array, work: LogWork, left: Array) -> Array:
    stage = np.log(left / REFERENCE)
    logs = weights[:, 0] + weights[:, 1] * work.k + weights[:, 2] * work.b + weights[:, 3] * work.e
    logs = logs + stage * (weights[:, 4] + weights[:, 5] * work.e + weights[:, 6] * work.k)
    return np.asarray(np.exp(np.clip(logs, -9.0, 1.0)))


def _prior(goal: float | None, labels: float) -> Prior:
    """Return what is believed at first: with unlike data more clients help more, local work less."""
    floor, floor_sd = OPEN_FLOOR, OPEN_FLOOR_SD
    if goal is not None:
        floor, floor_sd = FLOOR_OF_GOAL * max(LEAST_LEFT, 1.0 - goal), FLOOR_SD
    k, e = 0.38 - 0.3 * labels, 0.35 + 0.15 * labels
    means = [math.log(RATE), k, B_MEAN, e, STAGE, 0.0, 0.0, math.log(floor)]
    sds = [RATE_SD, K_SD, B_SD, E_SD, STAGE_SD, STAGE_E_SD, STAGE_K_SD, floor_sd]
    return Prior(np.array(means), np.array(sds))


def _starts(rounds: Sequence[Round]) -> tuple[float | None, ...]:
    """Return the accuracy that each round begins from where it is not where the last one ended."""
    found: list[float | None] = []
    last: float | None = None
    for one in rounds:
        found.append(one.before if last is None or abs(one.before - last) > JUMP else None)
        last = one.accuracy
    return tuple(found)
