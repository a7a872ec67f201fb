from __future__ import annotations

import pytest

from agents.federated.embedded import FederationSpec, TrainingWishes, _other
from agents.federated.space import federation_space
from tests.errors import raised
from tuner.core import InvalidInput


def federation(clients: int) -> FederationSpec:
    return FederationSpec(name="digits", classes=["high", "low"], clients=clients)


def test_the_participants_fit_the_clients_that_answer() -> None:
    device = federation(30).device("agent", "host")
    assert device.space.knobs[0].values == (5, 10, 20)
    assert {knob.name for knob in device.space.knobs[1:]} == {
        f"{what}.{kind}" for what in ("batch_size", "local_epochs") for kind in ("high", "low")
    }


def test_a_federation_without_clients_or_a_space_is_refused() -> None:
    with raised(InvalidInput, "digits", "clients_there"):
        federation(0).device("agent", "host")
    own = FederationSpec(name="digits", classes=["all"], space=federation_space(["all"], 4))
    assert own.device("agent", "host").space is own.space


@pytest.mark.parametrize(
    ("clients", "goes_on"), [(100, True), (70, True), (7, False), (2000, False)]
)
def test_a_study_goes_on_while_its_usual_participants_fit(clients: int, goes_on: bool) -> None:
    former = {
        "phase": "tuning",
        "policy": "fedgpo",
        "objective": "minimize energy_j",
        "constraints": [],
        "baseline": {"setting": {"participants": 50}},
    }
    why = _other(former, TrainingWishes(), federation(clients).knobs)
    assert (why == "") is goes_on, why
