"""Others' tuners and simple ones, rebuilt as policies, so that the comparison is of judgement."""

from __future__ import annotations

from collections.abc import Mapping

from policies import POLICIES, load_policy
from tuner.core import Policy

RIVALS: Mapping[str, str] = {
    "hillclimb": "tests.bench.rivals.hillclimb:Hillclimb",
    "optuna-tpe": "tests.bench.rivals.optuna:OptunaTpe",
    "optuna-gp": "tests.bench.rivals.optuna:OptunaGp",
    "botorch-plain": "tests.bench.rivals.botorch:BotorchPlain",
    "fedgpo-bo": "tests.bench.rivals.rounds:SearchedRounds",
    "fedgpo-fixed": "tests.bench.rivals.rounds:FixedRounds",
    "fedgpo-random": "tests.bench.rivals.rounds:RandomRounds",
}
"""Name to `module:Class`: what a bench knows beside the product's own."""


def load_tuner(name: str) -> Policy:
    """Return a rival, or a policy of the product, by its name.

    Raises:
        InvalidInput: there is neither, or it cannot be imported or created.
    """
    return load_policy(name, {**POLICIES, **RIVALS})
