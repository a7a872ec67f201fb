"""The joules, participants × (computing · E · f(B) + sending + waiting), and seconds of a round.

f(B) = 1 + h / B: small batches use a processor less well. A round waits for its slowest
participant, so its seconds rise with the number of participants, too. Classes of clients differ
by factors on computing, its seconds and the seconds of sending.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.fedgpo.federation import Round
from policies.fedgpo.fitting import Array, Prior, Weights, fitted

COMPUTE_J, SENDING_J, WAITING_J = "compute_j", "communication_j", "waiting_j"
ENERGY_J, SECONDS, CARBON_G = "energy_j", "round_s", "carbon_g"
NOISE: Mapping[str, float] = {
    COMPUTE_J: 0.15,
    SENDING_J: 0.15,
    WAITING_J: 0.4,
    ENERGY_J: 0.2,
    SECONDS: 0.45,
}
"""The standard deviation of the logarithm of one round's value: each round has other clients."""
MEANS: Mapping[str, tuple[float, float]] = {
    "compute": (math.log(0.2), 2.0),
    "half": (math.log(4.0), 0.5),
    "sending": (0.0, 2.0),
    "waiting": (math.log(0.2), 1.0),
    "slow": (-0.3, 0.7),
    "reach": (0.0, 2.0),
    "crowd": (0.34, 0.07),
}
"""Mean and standard deviation of the prior of each weight's logarithm, except for the exponent
`crowd`, which is not a logarithm. Joules and seconds are relative to those of the first round
that reports them. `slow` is the ratio of computing to sending in the time, over that in the
joules."""
OWN_SD = (0.7, 0.7, 0.5)
"""The deviation of a class's factors on the joules and seconds of computing, and the seconds of
sending, in the logarithm."""
FEWEST = 10.0
LEAST_COUNT = 1e-3
SLOWEST = 4.0
"""A round lasts as long as its slowest class: the exponent of a mean that comes near the largest."""


@dataclass(frozen=True)
class RoundCosts:
    """The costs of rounds, learned from past rounds: the weights of the parts, and their units.

    `classes` are the names of the classes of clients. The work of a round is a row for each class:
    its participants, batch size and local work.
    """

    classes: tuple[str, ...]
    weights: Weights
    joules: float
    seconds: float
    carbon: float

    @classmethod
    def of(cls, rounds: Sequence[Round], classes: Sequence[str], works: Array) -> RoundCosts:
        """Return the costs learned from some rounds; `works` has the work of each."""
        counts = np.maximum(1.0, works[:, :, 0].sum(axis=1))
        joules = _unit(
            [r.shown.get(ENERGY_J, 0.0) / n for r, n in zip(rounds, counts, strict=True)]
        )
        seconds = _unit([r.shown.get(SECONDS, 0.0) for r in rounds])
        intensities = [
            r.shown[CARBON_G] / r.shown[ENERGY_J]
            for r in rounds
            if CARBON_G in r.shown and r.shown.get(ENERGY_J, 0.0) > 0.0
        ]
        noise = {**NOISE}
        if len(classes) > 1:
            for joule, second in map(_own, classes):
                noise |= {joule: NOISE[ENERGY_J], second: NOISE[SECONDS]}
        observed = [
            (i, name, math.log(one.shown[name] / (seconds if name.endswith("_s") else joules)))
            for i, one in enumerate(rounds)
            for name in noise
            if one.shown.get(name, 0.0) > 0.0 and not (name == ENERGY_J and COMPUTE_J in one.shown)
        ]

        def predict(weights: Array) -> Array:
            parts = _logs(classes, weights, works)
            return np.array([parts[name][:, i] for i, name, _ in observed]).T

        values = np.array([v for *_, v in observed])
        noises = np.array([noise[name] for _, name, _ in observed])
        fit = fitted(predict, values, noises, _prior(len(classes)))
        carbon = float(np.mean(intensities)) if intensities else 1.0
        return cls(tuple(classes), fit, joules, seconds, carbon)

    def metric(self, name: str, weights: Array, works: Array) -> Array:
        """Return the predicted metric of rounds: one row per row of weights, one column per round."""
        logs = _logs(self.classes, weights, works)[ENERGY_J if name == CARBON_G else name]
        unit = self.seconds if name.endswith("_s") else self.joules
        return np.asarray(np.exp(logs) * unit * (self.carbon if name == CARBON_G else 1.0))

    def difference(self, work: Array) -> float:
        """Return the largest ratio of two classes' seconds of a participant in a round."""
        alike = work.mean(axis=0)[None, None, :].repeat(len(work), axis=1)
        logs = _logs(self.classes, self.weights.mean[None, :], alike)
        return float(np.exp(np.ptp([logs[_own(name)[1]] for name in self.classes])))


def _own(name: str) -> tuple[str, str]:
    """Return the names of the joules and of the seconds of a class."""
    return f"energy_{name}_j", f"slowest_{name}_s"


def _prior(classes: int) -> Prior:
    """Return the prior of the weights; a single class has no factors of its own."""
    means, sds = (list(column) for column in zip(*MEANS.values(), strict=True))
    own = [sd for sd in OWN_SD for _ in range(classes)] if classes > 1 else []
    return Prior(np.array(means + [0.0] * len(own)), np.array(sds + own))


def _unit(values: Sequence[float]) -> float:
    """Return the first positive value, the unit of a part; 1 if there is none."""
    return next((value for value in values if value > 0.0), 1.0)


def _logs(classes: Sequence[str], weights: Array, works: Array) -> dict[str, Array]:
    """Return the logarithm of each part of some rounds: a row per row of weights, a column per round."""
    common, count = len(MEANS), len(classes)
    compute, half, sending, waiting, slow, reach, crowd = weights[:, :common].T[:, :, None, None]
    own = np.zeros((len(OWN_SD), 1, 1, count))
    if count > 1:
        own = weights[:, common:].reshape(len(weights), len(OWN_SD), 1, count).swapaxes(0, 1)
    people, batch, local = np.moveaxis(works, 2, 0)
    people = np.maximum(LEAST_COUNT, people)
    busy = np.log(local * (1.0 + np.exp(half) / batch))
    computed = busy + compute + own[0]
    slowed = busy + reach + compute - sending + slow + own[1]
    each = np.logaddexp(slowed, reach + own[2]) + crowd * np.log(people / FEWEST)
    lasting = np.logaddexp.reduce(SLOWEST * each, axis=2) / SLOWEST
    waits = waiting[..., 0] + lasting
    spent = np.log(people) + np.logaddexp(np.logaddexp(computed, sending), waits[..., None])
    heads = np.log(people.sum(axis=1))
    parts = {
        COMPUTE_J: np.logaddexp.reduce(np.log(people) + computed, axis=2),
        SENDING_J: np.broadcast_to(sending[..., 0] + heads, lasting.shape),
        WAITING_J: waits + heads,
        ENERGY_J: np.logaddexp.reduce(spent, axis=2),
        SECONDS: lasting,
    }
    for i, name in enumerate(classes):
        parts |= dict(zip(_own(name), (spent[:, :, i], each[:, :, i]), strict=True))
    return parts
