"""A contextual bandit: the setting with the most progress per joule in the state of the moment.

Two Bayesian models, linear in the logarithms of B, E and K: one of the logarithm of a round's progress, by
how far the training has come; one of that of its energy, by load and network. Thompson sampling (Thompson
1933; Agrawal and Goyal 2013): each round the models' weights are drawn by seed and round, and the setting
with the most progress per joule by them is chosen. All of it is our own: the table of FedGPO's learner has
many cells, and a training few rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.fedgpo.federation import ACCURACY, Federation, Round, rounds, state_now
from policies.fedgpo.progress import error, progress
from tuner.core import Context, Past, Setting, Suggestion, Try, Wait

Array = NDArray[np.float64]

LEAST_PROGRESS = 1e-3
EPOCHS_PAY, BATCH_PAYS, PARTICIPANTS_PAY = 0.5, -0.5, 0.1
"""What a round's progress is expected to rise by with E, B and K: exponents. Rounds get rarer about as
local steps get more, and hardly with more participants (McMahan et al., arXiv 1602.05629, table 2)."""
PROGRESS_SLOPE_SD, PARTICIPANTS_SD, STAGE_SD, PROGRESS_BEND_SD = 0.3, 0.15, 0.5, 0.1
PROGRESS_NOISE = 0.3
"""Of the usual progress, at least."""
PARTICIPANTS_SLOPE, EPOCHS_SLOPE, BATCH_SLOPE = 1.0, 0.7, -0.1
"""What a round's energy is expected to rise by with K, E and B: exponents, as work is done per client."""
ENERGY_SLOPE_SD, ENERGY_BEND_SD, STATE_SD = 0.3, 0.1, 0.3
ENERGY_NOISE = 0.1
FIRST_ROUNDS = 2
"""Progress is relative to that of the first rounds, which are the study's baseline."""
MOST_ROUNDS = 150
"""Only so many of the latest rounds are learnt from: older ones tell little of how far the training is."""
EXPLORATION = 0.5
"""Of the weights' doubt: a training ends after some dozens of rounds. Chosen on the made task, on seeds
that are not judged."""
REFITS = 12
PASSES = 3


class Bandit:
    """Picks the setting that promises the most progress per joule, in doubt by chance."""

    heeds: frozenset[str] = frozenset()

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
        learnt = rounds(past, federation)[-MOST_ROUNDS:]
        if not learnt:
            return Try(federation.default, "nothing has been learnt yet")
        number = max(t.number for t in past.trials) + 1
        worth = _Worth(federation, learnt, np.random.default_rng([past.study.seed, number]))
        now = {ACCURACY: learnt[-1].accuracy, **state_now(past, learnt)}
        setting = _ascended(federation, learnt[-1].setting, lambda s: worth.of(s, now))
        return Try(setting, f"the most progress per joule by what {len(learnt)} rounds taught")


@dataclass(frozen=True)
class Weights:
    """A normal distribution of a model's weights."""

    mean: Array
    cov: Array

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return weights drawn from it, with less than its doubt."""
        return rng.multivariate_normal(self.mean, EXPLORATION**2 * self.cov, method="cholesky")


@dataclass(frozen=True)
class LogLinearModel:
    """A positive value that is the exponential of features times weights, and is seen with noise.

    `mean` and `sd` are the weights' prior; the noise of a value is at least so much, more where the fit
    leaves more over.
    """

    mean: Array
    sd: Array
    noise: float

    def fitted(self, features: Array, values: Array) -> Weights:
        """Return the weights after some values were seen (Gauss–Newton, Laplace's approximation)."""
        weights: Array = self.mean.copy()
        spread = self.noise
        prior = np.diag(self.sd**-2.0)
        cov: Array = np.diag(self.sd**2.0)
        for _ in range(REFITS):
            expected = np.exp(np.clip(features @ weights, -20.0, 20.0))
            slopes = expected[:, None] * features
            cov = np.asarray(np.linalg.inv(prior + slopes.T @ slopes / spread**2))
            pull = slopes.T @ (values - expected) / spread**2 + prior @ (self.mean - weights)
            step = cov @ pull
            weights = np.asarray(weights + step / max(1.0, float(np.abs(step).max())))
            left = values - np.exp(np.clip(features @ weights, -20.0, 20.0))
            spread = max(self.noise, float(np.sqrt(np.mean(left**2))))
        return Weights(weights, (cov + cov.T) / 2.0)


class _Worth:
    """The logarithm of a setting's progress per joule, by weights that were drawn once."""

    def __init__(
        self, federation: Federation, learnt: Sequence[Round], rng: np.random.Generator
    ) -> None:
        self._federation = federation
        self._log = {
            knob.name: {
                v: math.log(float(v) / float(federation.default[knob.name])) for v in knob.values
            }
            for knob in federation.knobs
        }
        gains = np.array([progress(r) for r in learnt])
        usual = max(LEAST_PROGRESS, float(gains[:FIRST_ROUNDS].mean()))
        bends = 8 * [PROGRESS_BEND_SD]
        paying = LogLinearModel(
            np.array([0.0, PARTICIPANTS_PAY, BATCH_PAYS, EPOCHS_PAY, 0.0, *(0.0 for _ in bends)]),
            np.array(
                [1.0, PARTICIPANTS_SD, PROGRESS_SLOPE_SD, PROGRESS_SLOPE_SD, STAGE_SD, *bends]
            ),
            PROGRESS_NOISE,
        )
        steps = [self._progressing(r.setting, {**r.state, ACCURACY: r.before}) for r in learnt]
        self._progress = paying.fitted(np.array(steps), gains / usual).drawn(rng)
        joules = np.array([r.energy_j for r in learnt])
        spent = [self._spending(r.setting, r.state) for r in learnt]
        taking = LogLinearModel(*self._spent_before(), ENERGY_NOISE)
        self._energy = taking.fitted(np.array(spent), joules / joules[0]).drawn(rng)

    def of(self, setting: Setting, now: Context) -> float:
        """Return it for a setting in a state, up to a constant."""
        gain = float(self._progress @ self._progressing(setting, now))
        return gain - float(self._energy @ self._spending(setting, now))

    def _logs(self, setting: Setting) -> tuple[float, list[float], list[float]]:
        """Return the logarithms of K, and of each class's B and E, over their defaults."""
        logs = {name: self._log[name][setting[name]] for name in self._log}
        kinds = self._federation.classes
        return (
            logs[self._federation.participants.name],
            [logs[k.batch.name] for k in kinds],
            [logs[k.epochs.name] for k in kinds],
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
