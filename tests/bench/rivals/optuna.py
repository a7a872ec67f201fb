"""Optuna's samplers as policies: TPE and Gaussian processes, both with constraints.

Optuna (Akiba et al., KDD 2019) is a library with its own state. Here its study is rebuilt in memory
from the trials at every suggestion, so that the same past gives the same suggestion. Each knob is an
integer, the index of its value on the ladder; objective and limits are logarithms if they are positive.
A sampled point that is not in the space, or was tried, is replaced by the nearest untried setting, with
all ladders scaled to equal length. If that is more than a rung of the longest ladder away, Optuna
samples again, at most twice. The first trials are random, fewer than Optuna's ten because a study here
is short: our own choice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from tests.bench.rivals.observed import Observed, ObservedSetting, observed
from tuner.core import InvalidInput, Knob, Past, Setting, Suggestion, Try

if TYPE_CHECKING:
    from types import ModuleType

    import optuna

ASKED = 3
"""The number of sampled points before the nearest setting is taken."""
TINY = 1e-9


class _Sampled:
    """A policy by one of Optuna's samplers.

    `startup` is the number of trials, the baseline included, before the sampler uses its model.
    """

    sampler: ClassVar[str]
    startup: ClassVar[int]

    def suggest(self, past: Past) -> Suggestion:
        """Return the sampler's next setting, or the best feasible one at the end.

        Raises:
            InvalidInput: Optuna is not installed.
        """
        sofar = observed(past)
        if not isinstance(sofar, Observed):
            return sofar
        kind = getattr(_optuna().samplers, self.sampler)
        seed = (past.study.seed + sofar.spent) % 2**32
        return _ask(sofar, kind(seed=seed, n_startup_trials=self.startup))


class OptunaTpe(_Sampled):
    """Tree-structured Parzen estimators, with constraints (Watanabe and Hutter 2022)."""

    sampler, startup = "TPESampler", 5


class OptunaGp(_Sampled):
    """Gaussian processes with constrained log-EI, Optuna's own."""

    sampler, startup = "GPSampler", 4


def _ask(sofar: Observed, sampler: optuna.samplers.BaseSampler) -> Suggestion:
    """Rebuild the study from the trials, and return its next setting."""
    optuna = _optuna()
    knobs = [k for k in sofar.space.knobs if len(k.values) > 1]
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
    lengths = {k.name: max(1, len(k.values) - 1) for k in sofar.space.knobs}
    rung = 1.0 / max(lengths.values())
    for _ in range(ASKED):
        trial = study.ask(dict(distributions))
        sampled = {k.name: k.values[trial.params[k.name]] for k in knobs}
        setting, away = sofar.nearest({**sofar.space.default, **sampled}, lengths)
        if away <= rung + TINY:
            break
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return Try(setting, "sampled by Optuna" if away == 0.0 else "nearest to what Optuna sampled")


def _places(knobs: list[Knob], setting: Setting) -> dict[str, int]:
    return {k.name: k.index(setting[k.name]) for k in knobs}


def _value(observation: ObservedSetting) -> float:
    """Return the logarithm of the loss; the loss itself if it is not positive."""
    return math.log(observation.loss) if observation.loss > 0.0 else observation.loss


def _optuna() -> ModuleType:
    """Return Optuna, silent on stderr. Raises InvalidInput: it is not installed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise InvalidInput(
            "this tuner needs Optuna, which is not installed",
            hint="pip install -e '.[dev]'",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
