"""Tuners of others and simple ones, rebuilt as policies, so that only their decisions are compared."""

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
    "fedgpo-alike": "tests.bench.rivals.rounds:AlikeRounds",
}
"""The rivals by name, as `module:Class`; benches compare them with the product's policies."""


def load_tuner(name: str) -> Policy:
    """Return a rival, or a policy of the product, by its name.

    Raises:
        InvalidInput: there is neither, or it cannot be imported or created.
    """
    return load_policy(name, {**POLICIES, **RIVALS})
