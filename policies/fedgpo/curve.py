"""Model the error over a training's rounds: each round removes a share of the error above a floor.

The share is log-linear in participants (K), batch size (B) and local work (E, epochs or steps), and
changes with the error left. The whole course is fitted together, as single rounds are noisy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.fedgpo.federation import Round, begins
from policies.fedgpo.fitting import Array, Prior, Weights, fitted

K_SD, E_SD, B_MEAN, B_SD = 0.10, 0.18, -0.40, 0.12
"""The prior of the effect of K, B and E on a round's share: from synthetic tasks that are not
used in the evaluation."""
USUAL_LABELS = 0.7
"""The share of all labels that a client holds, if it is not reported."""
STAGE, STAGE_SD, STAGE_E_SD, STAGE_K_SD = 1.0, 0.4, 0.06, 0.08
RATE, RATE_SD = 0.1, 1.0
FLOOR_OF_GOAL, FLOOR_SD = 0.45, 0.4
"""The floor, as a share of the error that the goal allows, and its deviation in the logarithm."""
OPEN_FLOOR, OPEN_FLOOR_SD = 0.03, 0.7
FLOOR_E_SD = 0.02
FLOOR_K, FLOOR_K_SD = -0.06, 0.06
"""The deviation of the floor's change with local work: chosen on synthetic tasks that are not
used in the evaluation."""
CREEP, STALLED = 0.1, 2.0
"""Near and below its floor the error still falls, by the share `CREEP` of the goal's error. If the
floor is above the goal, it falls by up to `STALLED` e-folds less."""
NOISE = 0.02
LEAST_LEFT, HIGHEST = 1e-3, -0.1
"""The least error left above the floor, and the highest logarithm of the floor."""
REFERENCE = 0.3
POINTS = 8
FIRST_ACCURACY = 0.1


@dataclass(frozen=True)
class ErrorCurve:
    """The curve's weights from past rounds, and the present progress.

    The work of a round is a row: the logarithms of its participants, batch size and local work
    over usual ones.
    """

    weights: Weights
    works: Array
    starts: tuple[float | None, ...]

    @classmethod
    def of(
        cls,
        rounds: Sequence[Round],
        works: Array,
        goal: float | None,
        labels: float = USUAL_LABELS,
    ) -> ErrorCurve:
        """Return the curve of some rounds towards an accuracy, None for no goal.

        `labels` is the share of all labels that a client holds in the mean.
        """
        starts = _starts(rounds)
        blank = cls(Weights(np.zeros(0), np.zeros((0, 0))), works, starts)
        whole = [i for i, one in enumerate(rounds) if one.whole]
        accuracies = np.array([rounds[i].accuracy for i in whole])
        noise = np.full(len(whole), NOISE)
        fit = fitted(
            lambda w: blank.course(w)[0][:, whole], accuracies, noise, _prior(goal, labels)
        )
        return cls(fit, works, starts)

    def course(self, weights: Array) -> tuple[Array, Array]:
        """Return the accuracy after each round, and the error at the end, for each row of weights."""
        error = np.full((len(weights), 1), 1.0 - FIRST_ACCURACY)
        accuracy = np.empty((len(weights), len(self.works)))
        floors, bases, slopes = _terms(weights, self.works)
        for i, start in enumerate(self.starts):
            at = slice(i, i + 1)
            left = (error if start is None else 1.0 - start) - floors[:, at]
            rate = _rate(bases[:, at], slopes[:, at], np.maximum(LEAST_LEFT, left))
            error = floors[:, at] + left * np.exp(-rate)
            accuracy[:, at] = 1.0 - error
        return accuracy, error[:, 0]

    def rounds_to(self, weights: Array, error: Array, goal: float | None, works: Array) -> Array:
        """Return the rounds from here to a goal; without one, the rounds to halve the error left.

        One row for each row of weights, one column for each row of works. Where the floor lies
        above the goal the training stalls, and the number is large.
        """
        floor, bases, slopes = _terms(weights, works)
        now = error[:, None]
        end = (now + floor) / 2.0 if goal is None else np.full_like(floor, 1.0 - goal)
        least = np.maximum(LEAST_LEFT, CREEP * end)
        ahead = np.maximum(np.log1p(np.maximum(0.0, now - end) / least), 0.1)
        rounds = np.zeros_like(floor)
        for share in (np.arange(POINTS) + 0.5) / POINTS:
            step = least * np.exp(ahead * share)
            over = (end + step - least - floor) / least
            left = least * np.where(over > 1.0, over, np.exp(np.clip(over - 1.0, -STALLED, 0.0)))
            rounds += step / (left * _rate(bases, slopes, left))
        return np.asarray(rounds * ahead / POINTS)


def _terms(weights: Array, works: Array) -> tuple[Array, Array, Array]:
    """Return the final error, the logarithm of the rate at the reference, and its slope by stage.

    One row for each row of weights, one column for each row of works.
    """
    k, b, e = works.T
    w = weights.T[:, :, None]
    floor = np.exp(np.minimum(w[7] + w[8] * e + w[9] * k, HIGHEST))
    return floor, w[0] + w[1] * k + w[2] * b + w[3] * e, w[4] + w[5] * e + w[6] * k


def _rate(base: Array, slope: Array, left: Array) -> Array:
    """Return the share of the error above the floor that a round removes."""
    return np.asarray(np.exp(np.clip(base + slope * np.log(left / REFERENCE), -9.0, 1.0)))


def _prior(goal: float | None, labels: float) -> Prior:
    """Return the prior: with unlike data more clients help more, and local work less."""
    floor, floor_sd = OPEN_FLOOR, OPEN_FLOOR_SD
    if goal is not None:
        floor, floor_sd = FLOOR_OF_GOAL * max(LEAST_LEFT, 1.0 - goal), FLOOR_SD
    k, e = 0.38 - 0.3 * labels, 0.35 + 0.15 * labels
    means = [math.log(RATE), k, B_MEAN, e, STAGE, 0.0, 0.0, math.log(floor), 0.0, FLOOR_K]
    sds = [RATE_SD, K_SD, B_SD, E_SD, STAGE_SD, STAGE_E_SD, STAGE_K_SD]
    sds += [floor_sd, FLOOR_E_SD, FLOOR_K_SD]
    return Prior(np.array(means), np.array(sds))


def _starts(rounds: Sequence[Round]) -> tuple[float | None, ...]:
    """Return the first accuracy of each round that does not continue the last one, else None."""
    starts: list[float | None] = []
    last: float | None = None
    for one in rounds:
        starts.append(one.before if last is None or begins(one.before, last) else None)
        last = one.accuracy
    return tuple(starts)
