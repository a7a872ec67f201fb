"""The contract of every policy for a new study: it supports each part, or refuses the part by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.builders import study
from tuner.core import (
    Constraint,
    InvalidInput,
    Mode,
    Objective,
    Policy,
    Safety,
    SaysWhatItHeeds,
    Study,
    Terms,
)
from tuner.service.drafts import refuse_unsupported

PLAIN = study(constraints=(), terms=Terms())
PARTS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "constraints": ({"constraints": (Constraint.parse("power_w <= 200"),)}, '"power_w <= 200.0"'),
    "safety": ({"safety": Safety.STRICT}, "the safety strict"),
    "objective": (
        {"objective": Objective("throughput_per_s", "maximize")},
        "throughput_per_s",
    ),
}


class HeedingContract:
    """A policy supports each part of a study, or refuses the part by name.

    A subclass gives the policy, and a plain study if the policy needs another space or mode. `asked` are
    further parts, each with the text that names it in a refusal.
    """

    plain = PLAIN
    asked: Mapping[str, tuple[Mapping[str, object], str]] = PARTS

    @pytest.fixture
    def policy(self) -> Policy:
        """Return the policy under test."""
        raise AssertionError("a subclass gives the policy")

    def with_part(self, part: str) -> tuple[Study, str]:
        changes, named = self.asked[part]
        terms = {k: v for k, v in changes.items() if k in ("safety", "mode")}
        own = {k: v for k, v in changes.items() if k not in terms}
        changed = replace(self.plain, **own, terms=replace(self.plain.terms, **terms))  # type: ignore[arg-type]
        return changed, named

    @pytest.mark.parametrize("part", [*PARTS, "mode", "limit"])
    def test_each_part_is_supported_or_refused_by_name(self, policy: Policy, part: str) -> None:
        if part not in self.asked:
            pytest.skip("no such part is asked for here")
        says = isinstance(policy, SaysWhatItHeeds)
        heeds = (
            policy.heeds if isinstance(policy, SaysWhatItHeeds) else {"objective", "constraints"}
        )
        refuse_unsupported(self.plain, policy)
        changed, named = self.with_part(part)
        try:
            refuse_unsupported(changed, policy)
        except InvalidInput as refused:
            assert named in refused.message and changed.policy in refused.message
            assert refused.hint
        else:
            assert part in heeds or not says


FEDERATED: Mapping[str, tuple[Mapping[str, object], str]] = {
    **PARTS,
    "limit": ({"constraints": (Constraint.parse("participated >= 5"),)}, '"participated >= 5.0"'),
    "mode": ({"mode": Mode.SEARCH}, "the mode search"),
}
