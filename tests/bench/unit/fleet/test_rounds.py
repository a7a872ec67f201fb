from __future__ import annotations

import math

import pytest

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import digits
from tuner.core import Setting

DEVICES, DIGITS = load_devices(), digits(0)


def training(seed: int = 0, alpha: float | None = 0.1) -> FederatedTraining:
    return FederatedTraining(DIGITS, DEVICES, seed, alpha)


def setting(k: int = 20, b: int = 8, e: int = 5) -> Setting:
    kinds = ("high", "mid", "low")
    return {
        "participants": k,
        **{f"batch_size.{kind}": b for kind in kinds},
        **{f"local_epochs.{kind}": e for kind in kinds},
    }


def test_the_joules_of_the_parts_and_of_the_classes_add_up() -> None:
    shown = training().run(setting()).metrics
    parts = [shown[f"{part}_j"] for part in ("compute", "communication", "waiting")]
    kinds = [shown[f"energy_{kind}_j"] for kind in ("high", "mid", "low")]
    assert math.fsum(parts) == pytest.approx(shown["energy_j"])
    assert math.fsum(kinds) == pytest.approx(shown["energy_j"])
    assert shown["participated"] == 20.0 and shown["round_s"] > 0.0 and shown["carbon_g"] > 0.0


def test_rounds_are_the_same_by_seed_and_setting() -> None:
    one, again, other = (training(seed) for seed in (0, 0, 1))
    results = [[t.run(setting()).metrics for _ in range(3)] for t in (one, again, other)]
    assert results[0] == results[1] != results[2]


def test_more_participants_and_epochs_take_more() -> None:
    def joules(**changed: int) -> float:
        return training().run(setting(**changed)).metrics["energy_j"]

    assert joules(k=10) < joules(k=20) < joules(k=50)
    assert joules(e=1) < joules(e=10)


def test_it_learns_from_and_reports_the_state_at_each_rounds_start() -> None:
    at = training(alpha=None)
    results = [at.run(setting()) for _ in range(12)]
    assert results[-1].metrics["accuracy"] > 0.8
    assert results[5].context["accuracy"] == results[4].metrics["accuracy"]
    assert results[5].context["round"] == 6.0
    assert 0.0 <= results[0].context["load.low"] <= 1.0
    assert results[0].context["data_classes.mid"] > 0.6


def test_clients_with_few_labels_are_reported() -> None:
    assert training(alpha=0.1).state()["data_classes.high"] < 0.4


def test_its_space_has_a_batch_and_epochs_for_each_class() -> None:
    names = {knob.name for knob in training().space.knobs}
    assert names == set(setting())
    assert training().space.default["participants"] == 50


def test_by_steps_a_rounds_cost_depends_on_its_steps_not_on_epochs() -> None:
    def joules(steps: int, epochs: int) -> float:
        of = FederatedTraining(DIGITS, DEVICES, 0, None, intervals=(1, 5, 50))
        by_steps = {**setting(e=epochs), "averaging_steps": steps}
        return of.run(by_steps).metrics["compute_j"]

    assert joules(5, 1) == joules(5, 10)
    assert joules(50, 1) == pytest.approx(10.0 * joules(5, 1), rel=0.01)


def test_different_data_cost_more_of_the_learning_than_similar_data() -> None:
    def loss(alpha: float | None) -> float:
        of = training(alpha=alpha)
        rounds = [of.run(setting(b=8, e=5)).metrics["skew_loss"] for _ in range(12)]
        return sum(rounds[6:]) / 6

    assert loss(0.1) > 2.0 * loss(None)
