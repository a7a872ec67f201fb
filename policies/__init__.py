"""The judgement: pure functions of the past, one file per policy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tuner.core import InvalidInput, Policy

POLICIES: Mapping[str, str] = {
    "polythrottle": "policies.polythrottle:Polythrottle",
    "sobol": "policies.sobol:Sobol",
}
"""Policy name to where its class is; imported only when chosen."""


def load_policy(name: str) -> Policy:
    """Return the policy of that name.

    Raises:
        InvalidInput: there is none.
    """
    try:
        module, _, attribute = POLICIES[name].partition(":")
    except KeyError:
        known = ", ".join(POLICIES)
        raise InvalidInput(
            f"there is no policy {name!r}", hint=f"the policies are: {known}"
        ) from None
    policy: Policy = getattr(import_module(module), attribute)()
    return policy
