"""A contextual bandit: the setting with the most progress per joule in the state of the moment.

Two Bayesian linear models of the logarithms of B, E and K: one of a round's progress, by how far the
training has come; one of its energy, by network and load. Thompson sampling (Thompson 1933; Agrawal and
Goyal 2013 for linear models): each round the models' weights are drawn by seed and round, and the setting
with the most progress per joule by them is chosen. All of it is our own, made as the table of FedGPO's
learner has many cells and a training few rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.fedgpo.federation import ACCURACY, Federation, Round, rounds, state_now
from policies.fedgpo.progress import error, progress
from tuner.core import Context, Past, Setting, Suggestion, Try, Wait, render_setting

Array = NDArray[np.float64]

LEAST_PROGRESS = 1e-3
PROGRESS_SLOPE, PROGRESS_BEND = 0.3, 0.1
"""Standard deviations of how progress depends on a knob, as shares of its mean."""
LINEAR = 5
"""So many of progress's features are linear: a constant, K, B, E and the stage of the training."""
PARTICIPANTS_SLOPE, EPOCHS_SLOPE, BATCH_SLOPE = 1.0, 0.7, -0.1
"""What a round's energy is expected to rise by with K, E and B: exponents, as work is done per client."""
ENERGY_SLOPE_SD, ENERGY_BEND_SD, STATE_SD = 0.3, 0.1, 0.3
ENERGY_NOISE = 0.1
REFITS = 3
PASSES = 3


class Bandit:
    """Picks the setting that promises the most progress per joule, in doubt by chance."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next round's setting; it never ends.

        Raises:
            InvalidInput: the space is no federation's.
        """
        federation = Federation.of(past.study.space)
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last round is still running")
        learnt = rounds(past, federation)
        if not learnt:
            return Try(federation.default, "nothing has been learnt yet")
        number = max(t.number for t in past.trials) + 1
        worth = _Worth(federation, learnt, np.random.default_rng([past.study.seed, number]))
        now = {ACCURACY: learnt[-1].accuracy, **state_now(past, learnt)}
        setting = _ascended(federation, learnt[-1].setting, lambda s: worth.of(s, now))
        why = f"the most progress per joule by what {len(learnt)} rounds taught"
        return Try(setting, f"{why}: {render_setting(setting)}")


@dataclass(frozen=True)
class LinearModel:
    """A normal distribution of weights."""

    mean: Array
    cov: Array

    @classmethod
    def fitted(
        cls, features: Array, values: Array, mean: Array, sd: Array, noise: float
    ) -> LinearModel:
        """Return the weights after some values were seen, from a prior; the noise is at least so much.

        More noise than that is found from what the fit leaves over.
        """
        spread = noise
        for _ in range(REFITS):
            precision = np.diag(sd**-2.0) + features.T @ features / spread**2
            cov = np.linalg.inv(precision)
            found = mean + cov @ features.T @ (values - features @ mean) / spread**2
            left = values - features @ found
            spread = max(noise, float(np.sqrt(np.mean(left**2))))
        return cls(found, (cov + cov.T) / 2.0)

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return weights drawn from it."""
        return rng.multivariate_normal(self.mean, self.cov, method="cholesky")


class _Worth:
    """The logarithm of a setting's progress per joule, by weights that were drawn once."""

    def __init__(
        self, federation: Federation, learnt: Sequence[Round], rng: np.random.Generator
    ) -> None:
        self._federation = federation
        gains = np.array([progress(r) for r in learnt])
        self._usual = max(LEAST_PROGRESS, float(gains.mean()))
        steps = np.array(
            [self._progressing(r.setting, {**r.state, ACCURACY: r.before}) for r in learnt]
        )
        slopes = np.full(steps.shape[1], PROGRESS_BEND)
        slopes[:LINEAR] = PROGRESS_SLOPE
        slopes[0] = 1.0
        first = np.zeros(steps.shape[1])
        first[0] = 1.0
        self._progress = LinearModel.fitted(
            steps, gains / self._usual, first, slopes, noise=PROGRESS_SLOPE
        ).drawn(rng)
        costs = np.log([r.energy_j for r in learnt])
        self._level = float(costs[0])
        spent = np.array([self._spending(r.setting, r.state) for r in learnt])
        self._energy = LinearModel.fitted(
            spent, costs - self._level, *self._spent_before(), noise=ENERGY_NOISE
        ).drawn(rng)

    def of(self, setting: Setting, now: Context) -> float:
        """Return it for a setting in a state."""
        gain = float(self._progress @ self._progressing(setting, now))
        cost = float(self._energy @ self._spending(setting, now))
        # Below the least progress the cheapest loses least.
        return (math.log(gain) if gain > 1e-6 else math.log(1e-6) + gain) - cost

    def _logs(self, setting: Setting) -> tuple[float, list[float], list[float]]:
        """Return the logarithms of K, and of each class's B and E, over their defaults."""

        def log(name: str) -> float:
            return math.log(float(setting[name]) / float(self._federation.default[name]))

        kinds = self._federation.classes
        return (
            log(self._federation.participants.name),
            [log(k.batch.name) for k in kinds],
            [log(k.epochs.name) for k in kinds],
        )

    def _progressing(self, setting: Setting, state: Context) -> list[float]:
        k, batches, epochs = self._logs(setting)
        b, e = sum(batches) / len(batches), sum(epochs) / len(epochs)
        stage = math.log(error(state[ACCURACY]))
        return [
            1.0,
            k,
            b,
            e,
            stage,
            k * k,
            b * b,
            e * e,
            k * e,
            b * e,
            stage * e,
            stage * b,
            stage * k,
        ]

    def _spending(self, setting: Setting, state: Context) -> list[float]:
        k, batches, epochs = self._logs(setting)
        bends = [x * x for x in (*batches, *epochs)]
        return [1.0, k, *batches, *epochs, *bends, k * k, *_circumstances(state, self._federation)]

    def _spent_before(self) -> tuple[Array, Array]:
        """Return the prior's mean and standard deviation of the energy's weights."""
        n = len(self._federation.classes)
        means = [0.0, PARTICIPANTS_SLOPE, *n * [BATCH_SLOPE / n], *n * [EPOCHS_SLOPE / n]]
        sds = [
            1.0,
            *(2 * n + 1) * [ENERGY_SLOPE_SD],
            *(2 * n + 1) * [ENERGY_BEND_SD],
            *2 * n * [STATE_SD],
        ]
        return np.array([*means, *(len(sds) - len(means)) * [0.0]]), np.array(sds)


def _circumstances(state: Context, federation: Federation) -> list[float]:
    """Return each class's load, and the logarithm of its network's bandwidth; 0 where it is not told."""
    loads = [state.get(f"load.{c.name}", 0.0) for c in federation.classes]
    networks = [state.get(f"network_mbps.{c.name}", 1.0) for c in federation.classes]
    return [*loads, *(math.log(max(1e-3, n)) for n in networks)]


def _ascended(federation: Federation, start: Setting, worth: Callable[[Setting], float]) -> Setting:
    """Return the best setting along one knob after the other, from the baseline and from a start."""
    found = [_climbed(federation, at, worth) for at in (federation.default, start)]
    return max(found, key=worth)


def _climbed(federation: Federation, at: Setting, worth: Callable[[Setting], float]) -> Setting:
    best = dict(at)
    for _ in range(PASSES):
        before = dict(best)
        for knob in federation.knobs:
            best = max(({**best, knob.name: value} for value in knob.values), key=worth)
        if best == before:
            break
    return best
