"""The comparable tuners: policies by name, with the changes that a comparison makes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.bench.rivals import load_tuner
from tuner.core import InvalidInput, Policy, Safety


@dataclass(frozen=True, slots=True)
class Tuner:
    """A policy by its name, its safety level, and a further package that it needs.

    `options` are keywords for its class, `without` the rules that it leaves out. With `readings` it
    does not search: every setting was read this many times before, and it only chooses the deployed
    one.
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
"""The comparable tuners. The first three are one policy at its three levels of safety. The ceiling is
its rule of deployment after three readings of every setting, an upper bound for any search."""


def policy_of(tuner: Tuner) -> Policy:
    """Return a tuner's policy, created with its options.

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
