"""Which tuners can be compared: policies by name, with what a comparison changes about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.bench.rivals import load_tuner
from tuner.core import InvalidInput, Policy, Safety


@dataclass(frozen=True, slots=True)
class Tuner:
    """A policy by its name, its safety level, and a package it needs beside.

    `options` are keywords that its class is made with, `without` the rules of its own that it is to do
    without. With `readings` it searches nothing: every setting was read so often before, and it only
    says what to deploy.
    """

    policy: str
    safety: Safety = Safety.BALANCED
    needs: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    readings: int = 0


TUNERS: Mapping[str, Tuner] = {
    "ours": Tuner("polythrottle"),
    "ours-strict": Tuner("polythrottle", Safety.STRICT),
    "ours-off": Tuner("polythrottle", Safety.OFF),
    "sobol": Tuner("sobol"),
    "hillclimb": Tuner("hillclimb"),
    "optuna-tpe": Tuner("optuna-tpe", needs="optuna"),
    "optuna-gp": Tuner("optuna-gp", needs="optuna"),
    "botorch-plain": Tuner("botorch-plain"),
    "ceiling": Tuner("polythrottle", readings=3),
}
"""What can be compared. The first three are one policy at its three levels of safety; the ceiling is what
its rule of deployment makes of three readings of every setting: no search can be expected to do better."""


def policy_of(tuner: Tuner) -> Policy:
    """Return a tuner's policy, made with its options.

    Raises:
        InvalidInput: there is no such policy, it has no such rule, or it does not take the options.
    """
    policy = load_tuner(tuner.policy)
    options = dict(tuner.options)
    if tuner.without:
        rules = tuple(getattr(policy, "rules", ()))
        unknown = sorted(tuner.without - {*rules})
        if unknown:
            raise InvalidInput(
                f"the policy {tuner.policy} has no rule {', '.join(unknown)} to do without",
                hint=f"its rules are: {', '.join(rules) or 'none'}",
            )
        options["without"] = tuner.without
    try:
        made: Policy = type(policy)(**options) if options else policy
    except TypeError as error:
        raise InvalidInput(
            f"the policy {tuner.policy} cannot be made with {', '.join(options)}: {error}",
            hint="give only keywords that its class takes",
        ) from error
    return made
