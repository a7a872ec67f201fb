"""The judgement: policies are pure functions of the past. One file or folder each, loaded by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tuner.core import InvalidInput, Policy

POLICIES: Mapping[str, str] = {
    "packrat": "policies.packrat:Packrat",
    "polythrottle": "policies.polythrottle:Polythrottle",
    "sobol": "policies.sobol:Sobol",
}
"""Name to `module:Class`. To add a policy, add its file and a line here."""


def load_policy(name: str) -> Policy:
    """Return a policy by its name; only that policy's module, and what it needs, is imported.

    Raises:
        InvalidInput: there is no such policy.
    """
    if name not in POLICIES:
        raise InvalidInput(
            f"there is no policy {name!r}", hint=f"choose one of {', '.join(POLICIES)}"
        )
    module, _, attribute = POLICIES[name].partition(":")
    policy: Policy = getattr(import_module(module), attribute)()
    return policy
