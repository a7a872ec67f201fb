"""The policies: pure functions of the past, one file or folder each, loaded by name.

Other packages offer theirs as entry points of the group `jouletune.policies`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner import installed
from tuner.core import InvalidInput, Policy, TuningError

GROUP = "jouletune.policies"
POLICIES: Mapping[str, str] = {
    "packrat": "policies.packrat:Packrat",
    "speculation": "policies.speculation.policy:Speculation",
    "fedgpo": "policies.fedgpo.bandit:Bandit",
    "fedgpo-qlearning": "policies.fedgpo.q_learning:QLearning",
    "polythrottle": "policies.polythrottle.policy:Polythrottle",
    "polythrottle-two-phase": "policies.polythrottle.policy:TwoPhase",
    "pareto": "policies.pareto.policy:Pareto",
    "sobol": "policies.sobol:Sobol",
    "power-sweep": "policies.budget.sweep:PowerSweep",
}
"""Name to `module:Class`. To add a policy, add its file and a line here."""
QUICK = frozenset({"fedgpo", "fedgpo-qlearning", "power-sweep"})
"""Policies that decide in a few milliseconds, less than a call to another process takes, and
that import no large package."""


def demand_policy(name: str, builtin: Mapping[str, str] = POLICIES) -> None:
    """Check that there is a policy of this name; imports none. Raises InvalidInput."""
    if name not in (names := installed.names(GROUP, builtin)):
        hint = f"choose one of {', '.join(names)}"
        raise InvalidInput(f"there is no policy {name!r}", hint=hint)


def load_policy(name: str, builtin: Mapping[str, str] = POLICIES) -> Policy:
    """Return a policy by its name; only that policy's module and its dependencies are imported.

    Raises:
        InvalidInput: there is no such policy, the package that offers it cannot be imported, or its
            entry point is not a policy.
    """
    demand_policy(name, builtin)
    factory = installed.load(GROUP, builtin, name)
    assert factory is not None, "its name is listed"
    try:
        policy: Policy = factory()
    except TuningError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"policy {name!r} cannot be created: {type(error).__name__}: {error}",
            hint="offer a class that is created without arguments",
        ) from error
    if not callable(getattr(policy, "suggest", None)):
        raise InvalidInput(
            f"policy {name!r} has no method suggest(past)", hint="add it to its class"
        )
    return policy
