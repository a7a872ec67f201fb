"""A policy supports each part of a study, or refuses it by name when the study is created."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies import POLICIES, load_policy
from tests.builders import Descend
from tests.contracts.heeding import FEDERATED, PARTS, PLAIN, HeedingContract
from tests.unit.policies.fedgpo.made_up import federated
from tuner.core import (
    Constraint,
    InvalidInput,
    Knob,
    Objective,
    Part,
    Policy,
    Role,
    SaysWhatItHeeds,
    Space,
)
from tuner.service.drafts import refuse_unsupported

FEDERATIONS = [name for name in POLICIES if name.startswith("fedgpo")]
OBJECTIVES = ("energy_j", "round_s", "carbon_g")
LIMITS = (*OBJECTIVES, "compute_j", "communication_j", "waiting_j")
GOAL = "accuracy >= 0.9"
LENGTH = Knob("length", (0, 2, 4), 0, Part.WORKLOAD, role=Role.SPECULATION_LENGTH)


class PlugIn(Descend):
    """A policy of another package that does not declare which parts it supports."""


class NeedsLatency(Descend):
    """A policy of another package that refuses a study by itself."""

    def refuse(self, study: object) -> None:
        raise InvalidInput("the policy s does not heed a study without latency", hint="add one")


class TestBuiltIn(HeedingContract):
    @pytest.fixture(params=[name for name in POLICIES if name not in FEDERATIONS])
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        second = Objective("latency_p99_ms") if request.param == "pareto" else None
        knobs = (*PLAIN.space.knobs, *((LENGTH,) if request.param == "speculation" else ()))
        self.plain = replace(
            PLAIN, policy=request.param, second_objective=second, space=Space(knobs)
        )
        return load_policy(request.param)


class TestPlugIn(HeedingContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return PlugIn()


class TestFederation(HeedingContract):
    asked = FEDERATED

    @pytest.fixture(params=FEDERATIONS)
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        self.plain = federated(policy=request.param)
        return load_policy(request.param)


def test_a_plug_in_may_refuse_a_study_by_itself() -> None:
    with pytest.raises(InvalidInput, match="without latency"):
        refuse_unsupported(PLAIN, NeedsLatency())


@pytest.mark.parametrize("metric", OBJECTIVES)
def test_a_federation_may_spend_the_least_of_joules_seconds_or_grams(metric: str) -> None:
    refuse_unsupported(
        federated(policy="fedgpo", objective=Objective(metric)), load_policy("fedgpo")
    )


@pytest.mark.parametrize("constraint", [GOAL, *(f"{metric} <= 5" for metric in LIMITS)])
def test_a_federation_supports_a_goal_and_limits_of_its_rounds(constraint: str) -> None:
    at = federated(policy="fedgpo", constraints=(constraint,))
    refuse_unsupported(at, load_policy("fedgpo"))


@pytest.mark.parametrize(
    "constraint",
    [
        "accuracy <= 0.9",
        "accuracy >= 2",
        "accuracy >= 0.9x baseline",
        "round_s >= 5",
        "failed <= 1",
    ],
)
def test_an_unsupported_constraint_is_refused_by_name(constraint: str) -> None:
    at = federated(policy="fedgpo", constraints=(constraint,))
    with pytest.raises(InvalidInput, match="does not support the constraint") as refused:
        refuse_unsupported(at, load_policy("fedgpo"))
    assert str(Constraint.parse(constraint)) in refused.value.message


@pytest.mark.parametrize("name", [n for n in FEDERATIONS if n != "fedgpo"])
def test_the_others_support_a_goal_and_refuse_limits_by_name(name: str) -> None:
    refuse_unsupported(federated(policy=name, constraints=(GOAL,)), load_policy(name))
    with pytest.raises(InvalidInput, match="round_s <= 5"):
        limited = federated(policy=name, constraints=(GOAL, "round_s <= 5"))
        refuse_unsupported(limited, load_policy(name))


def test_only_policies_that_predict_support_a_strict_safety() -> None:
    heeding = {n for n in POLICIES if "safety" in getattr(load_policy(n), "heeds", ())}
    assert heeding == {"polythrottle", "polythrottle-two-phase", "pareto"}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_federations_declare_the_parts_they_support(name: str) -> None:
    assert isinstance(load_policy(name), SaysWhatItHeeds) and "objective" in PARTS
