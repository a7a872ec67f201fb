"""What a study asks for is heeded by its policy, or refused by name when the study is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies import POLICIES, load_policy
from tests.builders import Descend, study
from tuner.core import (
    Constraint,
    InvalidInput,
    Objective,
    Policy,
    Safety,
    SaysWhatItHeeds,
    Study,
    Terms,
)
from tuner.service.drafts import refuse_unheeded

PLAIN = study(constraints=(), terms=Terms())
PARTS: dict[str, tuple[Study, str]] = {
    "constraints": (
        replace(PLAIN, constraints=(Constraint.parse("power_w <= 200"),)),
        'the constraint "power_w <= 200.0"',
    ),
    "safety": (replace(PLAIN, terms=Terms(safety=Safety.STRICT)), "the safety strict"),
    "objective": (
        replace(PLAIN, objective=Objective("throughput_per_s", "maximize")),
        "the objective throughput_per_s",
    ),
}


class PlugIn(Descend):
    """A policy of another package that says nothing of what it heeds."""


def offered(name: str) -> Policy:
    return PlugIn() if name == "plug-in" else load_policy(name)


@pytest.mark.parametrize("name", [*POLICIES, "plug-in"])
@pytest.mark.parametrize("part", list(PARTS))
def test_each_part_is_heeded_or_refused_by_name(name: str, part: str) -> None:
    policy = offered(name)
    asked, what = PARTS[part]
    says = isinstance(policy, SaysWhatItHeeds)
    heeds = policy.heeds if isinstance(policy, SaysWhatItHeeds) else {"objective", "constraints"}
    assert says or name not in ("polythrottle", "fedgpo")
    refuse_unheeded(replace(PLAIN, policy=name), policy)
    if part in heeds:
        refuse_unheeded(replace(asked, policy=name), policy)
        return
    with pytest.raises(InvalidInput, match=what.replace(".", r"\.")) as refused:
        refuse_unheeded(replace(asked, policy=name), policy)
    assert name in refused.value.message
    assert refused.value.hint


def test_a_federation_learns_by_energy_alone() -> None:
    """Its learners are rewarded by progress per joule: limits are no part of that."""
    assert isinstance(policy := load_policy("fedgpo"), SaysWhatItHeeds)
    assert not policy.heeds


def test_only_what_predicts_what_it_tries_heeds_a_strict_safety() -> None:
    heeding = {n for n in POLICIES if "safety" in getattr(load_policy(n), "heeds", ())}
    assert heeding == {"polythrottle", "polythrottle-two-phase"}
