from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.fedgpo.federation import Federation, rounds
from tests.builders import knob, past
from tests.unit.policies.fedgpo.made_up import CLASSES, MadeUp, federated, space
from tuner.core import Estimate, InvalidInput, Knob, Part, Phase, Role, Space, Trial, TrialState

K = Knob("participants", (10, 20), 10, Part.WORKLOAD, role=Role.PARTICIPANTS)
B = Knob("batch_size.high", (8, 16), 8, Part.WORKLOAD, role=Role.LOCAL_BATCH)
E = Knob("local_epochs.high", (1, 5), 1, Part.WORKLOAD, role=Role.LOCAL_EPOCHS)


def two_rounds() -> list[Trial]:
    made = MadeUp()
    return [made.round(n, space().default, Phase.BASELINE) for n in (1, 2)]


def showing(one: Trial, **values: float) -> Trial:
    assert one.measurement is not None
    shown = {name: Estimate.of_mean(value, 0.0) for name, value in values.items()}
    estimates = {**one.measurement.estimates, **shown}
    return replace(one, measurement=replace(one.measurement, estimates=estimates))


def test_knobs_are_found_by_their_roles_and_classes_by_their_names() -> None:
    federation = Federation.of(space())
    assert [one.name for one in federation.classes] == list(CLASSES)
    assert federation.participants.name == "participants"
    assert federation.setting(20, dict.fromkeys(CLASSES, (8, 5)))["local_epochs.low"] == 5


def test_other_knobs_keep_their_default() -> None:
    other = knob("gpu.clock_mhz", (500, 1000), 1000)
    federation = Federation.of(Space((K, B, E, other)))
    assert federation.setting(20, {"high": (16, 5)})["gpu.clock_mhz"] == 1000


@pytest.mark.parametrize(
    "knobs",
    [
        (B, E),
        (K, B),
        (K, E),
        (K,),
        (K, B, replace(E, name="local_epochs.low")),
        (K, B, replace(E, values=(0, 1))),
        (replace(K, values=(10, 20.5)), B, E),
    ],
)
def test_a_space_that_is_not_a_federation_is_refused(knobs: tuple[Knob, ...]) -> None:
    with pytest.raises(InvalidInput):
        Federation.of(Space(knobs))


def test_a_round_reports_its_cost_and_gain() -> None:
    first, second = rounds(past(federated(), two_rounds()), Federation.of(space()))
    assert first.before == 0.1 and second.before == first.accuracy
    assert first.gain > 0.0 and first.spent == pytest.approx(math.fsum(first.class_spent.values()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"accuracy": 1.5},
        {"accuracy": -0.1},
        {"energy_j": 0.0},
    ],
)
def test_rounds_with_impossible_results_are_not_learned_from(wrong: dict[str, float]) -> None:
    one, two = two_rounds()
    learnt = rounds(past(federated(), [one, showing(two, **wrong)]), Federation.of(space()))
    assert [r.number for r in learnt] == [1]


def test_failed_rounds_are_not_learnt_from() -> None:
    one, two = two_rounds()
    failed = replace(two, state=TrialState.FAILED, measurement=None)
    assert len(rounds(past(federated(), [one, failed]), Federation.of(space()))) == 1


def test_a_round_without_a_reported_start_uses_the_previous_rounds_end() -> None:
    one, two = two_rounds()
    assert two.measurement is not None
    forgot = replace(two, measurement=replace(two.measurement, context={}))
    learnt = rounds(past(federated(), [one, forgot]), Federation.of(space()))
    assert learnt[1].before == learnt[0].accuracy
