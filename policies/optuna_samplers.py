"""Optuna's samplers as policies: TPE and Gaussian processes, both with constraints.

Optuna (Akiba et al., KDD 2019) is a library and keeps its own memory; here its study is built anew,
in memory, from the trials at every suggestion, so that the same past gives the same suggestion. Each
knob is an integer, the place of its value on the ladder; objective and limits go in as logarithms
where they are positive. A sampled point that the space does not have, or that was tried, stands for
the nearest untried setting; where that is further than a rung of the longest ladder away, Optuna is
asked again, twice at most. The first trials are random, fewer than Optuna's ten, since a study here
has few: our own choice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.core import InvalidInput, Knob, Past, Setting, Suggestion, Try
from tuner.observed import Observation, Observed, observed

if TYPE_CHECKING:
    from types import ModuleType

    import optuna

ASKED = 3
"""How often a point is sampled before the nearest setting is taken."""
TINY = 1e-9
TPE_STARTUP = 5
GP_STARTUP = 4
"""Trials, the baseline among them, before the sampler uses its model."""


class OptunaTpe:
    """Tree-structured Parzen estimators, with constraints (Watanabe and Hutter 2022)."""

    def suggest(self, past: Past) -> Suggestion:
        """Return TPE's next setting, or the best feasible one at the end.

        Raises:
            InvalidInput: Optuna is not installed.
        """
        sofar = observed(past)
        if not isinstance(sofar, Observed):
            return sofar
        seed = _seed(past, sofar)
        sampler = _optuna().samplers.TPESampler(seed=seed, n_startup_trials=TPE_STARTUP)
        return _ask(past, sofar, sampler)


class OptunaGp:
    """Gaussian processes with constrained log-EI, Optuna's own."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the GP's next setting, or the best feasible one at the end.

        Raises:
            InvalidInput: Optuna is not installed.
        """
        sofar = observed(past)
        if not isinstance(sofar, Observed):
            return sofar
        seed = _seed(past, sofar)
        sampler = _optuna().samplers.GPSampler(seed=seed, n_startup_trials=GP_STARTUP)
        return _ask(past, sofar, sampler)


def _ask(past: Past, sofar: Observed, sampler: optuna.samplers.BaseSampler) -> Suggestion:
    """Rebuild the study from the trials and ask it for the next setting."""
    optuna = _optuna()
    knobs = [k for k in past.study.space.knobs if len(k.values) > 1]
    if not knobs or len(sofar.untried) == 1:
        return Try(sofar.untried[0], "the only setting left")
    distributions = {
        k.name: optuna.distributions.IntDistribution(0, len(k.values) - 1) for k in knobs
    }
    study = optuna.create_study(direction="minimize", sampler=sampler)
    for observation in sofar.seen.values():
        study.add_trial(
            optuna.trial.create_trial(
                params=_places(knobs, observation.setting),
                distributions=dict(distributions),
                value=_value(observation),
                constraints={f"limit {i}": b for i, b in enumerate(observation.breaches)},
            )
        )
    rung = 1.0 / (max(len(k.values) for k in knobs) - 1)
    for _ in range(ASKED):
        trial = study.ask(dict(distributions))
        setting, away = _nearest(knobs, sofar, trial.params)
        if away <= rung + TINY:
            break
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return Try(setting, "sampled by Optuna" if away == 0.0 else "nearest to what Optuna sampled")


def _places(knobs: list[Knob], setting: Setting) -> dict[str, int]:
    return {k.name: k.index(setting[k.name]) for k in knobs}


def _nearest(knobs: list[Knob], sofar: Observed, places: dict[str, int]) -> tuple[Setting, float]:
    """Return the untried setting nearest to some places, and how far; each ladder has length 1."""

    def away(setting: Setting) -> float:
        own = _places(knobs, setting)
        return sum(abs(own[k.name] - places[k.name]) / (len(k.values) - 1) for k in knobs)

    nearest = min(sofar.untried, key=away)
    return nearest, away(nearest)


def _value(observation: Observation) -> float:
    """Return the loss on a logarithmic scale, as it is where it is not positive."""
    return math.log(observation.loss) if observation.loss > 0.0 else observation.loss


def _seed(past: Past, sofar: Observed) -> int:
    return (past.study.seed + sofar.spent) % 2**32


def _optuna() -> ModuleType:
    """Return Optuna, silent on stderr. Raises InvalidInput where it is not installed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise InvalidInput(
            "this policy needs Optuna, which is not installed",
            hint="pip install 'jouletune[bench]'",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
