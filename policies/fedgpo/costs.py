"""The joules, participants × (computing · E · f(B) + sending + waiting), and seconds of a round.

f(B) = 1 + h / B: small batches use a processor less well. A round waits for its slowest
participant, so its seconds rise with the number of participants, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
FEWEST = 10.0


@dataclass(frozen=True)
class RoundWork:
    """The work of a round: participants that answer, batch size, and local work."""

    participants: float
    batch: float
    local: float


@dataclass(frozen=True)
class RoundCosts:
    """The costs of rounds, learned from past rounds: the weights of the parts, and their units."""

    weights: Weights
    joules: float
    seconds: float
    carbon: float

    @classmethod
    def of(cls, rounds: Sequence[Round], works: Sequence[RoundWork]) -> RoundCosts:
        """Return the costs learned from some rounds."""
        joules = _unit(rounds, works, lambda r, w: r.shown.get(ENERGY_J, 0.0) / w.participants)
        seconds = _unit(rounds, works, lambda r, _: r.shown.get(SECONDS, 0.0))
        intensities = [
            r.shown[CARBON_G] / r.shown[ENERGY_J]
            for r in rounds
            if CARBON_G in r.shown and r.shown.get(ENERGY_J, 0.0) > 0.0
        ]
        observed: list[tuple[int, str, float]] = []
        for i, (one, work) in enumerate(zip(rounds, works, strict=True)):
            for name in NOISE:
                unit = seconds if name == SECONDS else joules * work.participants
                if one.shown.get(name, 0.0) > 0.0 and not (
                    name == ENERGY_J and COMPUTE_J in one.shown
                ):
                    observed.append((i, name, math.log(one.shown[name] / unit)))
        prior = Prior(*(np.array(x) for x in zip(*MEANS.values(), strict=True)))

        def predict(weights: Array) -> Array:
            parts = {name: _logs(name, weights, works) for name in NOISE}
            return np.array([parts[name][:, i] for i, name, _ in observed]).T

        values = np.array([v for *_, v in observed])
        noise = np.array([NOISE[name] for _, name, _ in observed])
        fit = fitted(predict, values, noise, prior)
        return cls(fit, joules, seconds, float(np.mean(intensities)) if intensities else 1.0)

    def metric(self, name: str, weights: Array, works: Sequence[RoundWork]) -> Array:
        """Return the predicted metric of rounds: one row per row of weights, one column per round."""
        relative = np.exp(_logs(ENERGY_J if name == CARBON_G else name, weights, works))
        if name == SECONDS:
            return np.asarray(self.seconds * relative)
        counts = np.array([w.participants for w in works])
        return np.asarray(
            relative * counts * self.joules * (self.carbon if name == CARBON_G else 1.0)
        )


def _unit(
    rounds: Sequence[Round],
    works: Sequence[RoundWork],
    of: Callable[[Round, RoundWork], float],
) -> float:
    """Return the first positive value of `of` over the rounds, the unit of a part; 1 if there is none."""
    units = (of(r, w) for r, w in zip(rounds, works, strict=True))
    return next((value for value in units if value > 0.0), 1.0)


def _logs(name: str, weights: Array, works: Sequence[RoundWork]) -> Array:
    """Return the logarithm of a part, per participant if it is in joules."""
    compute, half, sending, waiting, slow, reach, crowd = (w[:, None] for w in weights.T)
    local = np.array([w.local for w in works])
    batch = np.array([w.batch for w in works])
    count = np.array([w.participants for w in works])
    busy = local * (1.0 + np.exp(half) / batch)
    computed, slowed = np.log(busy) + compute, np.log(busy) + reach + compute - sending + slow
    lasting = np.logaddexp(slowed, reach) + crowd * np.log(count / FEWEST)
    waits = waiting + lasting
    if name == SECONDS:
        return np.asarray(lasting)
    if name == WAITING_J:
        return np.asarray(waits)
    if name == COMPUTE_J:
        return np.asarray(computed)
    if name == SENDING_J:
        return np.asarray(sending + 0.0 * busy)
    return np.asarray(np.logaddexp(np.logaddexp(computed, sending), waits))
