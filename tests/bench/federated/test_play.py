from __future__ import annotations

from dataclasses import replace

import pytest

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.task import digits
from tests.bench.federated.play import Played, play, play_fixed
from tests.bench.federated.setups import FederationSetup

SMALL = FederationSetup(digits, None, load_devices(), rounds=6)


def played(*accuracies: float) -> Played:
    metrics = tuple({"accuracy": a, "energy_j": 10.0} for a in accuracies)
    return Played(({},) * len(metrics), metrics, 0.0)


def test_a_target_is_reached_by_the_mean_of_a_few_rounds() -> None:
    run = played(0.9, 0.1, 0.2, 0.8, 0.9, 0.9)
    assert run.rounds_to(0.5) == 5
    assert run.spent("energy_j", 0.5) == 50.0


def test_where_a_target_is_never_reached_all_rounds_count() -> None:
    run = played(0.1, 0.2, 0.3)
    assert run.rounds_to(0.9) is None and run.spent("energy_j", 0.9) == 30.0
    assert run.final_accuracy == pytest.approx(0.2)


def test_a_policy_trains_to_its_goal_and_the_same_by_seed() -> None:
    one, again = (play(SMALL, "fedgpo", 3, 0.99) for _ in range(2))
    assert one.settings == again.settings and one.metrics == again.metrics
    assert len(one.metrics) == 6
    assert len(play(SMALL, "fedgpo", 3, 0.05).metrics) == 3, "the goal ends it"


def test_a_fixed_setting_is_the_setting_of_every_class() -> None:
    run = play_fixed(SMALL, {"participants": 10, "batch_size": 8, "local_epochs": 5}, 0)
    assert run.settings[0]["local_epochs.low"] == 5 and run.settings[0] == run.settings[-1]


def test_fixed_values_are_not_knobs_and_grams_follow_each_classs_electricity() -> None:
    grids = {"high": 400.0, "mid": 0.0, "low": 0.0}
    setup = replace(SMALL, rounds=3, clients=20, g_per_kwh=grids, held={"participants": 5})
    run = play(setup, "fedgpo", 0, 0.99, "carbon_g")
    assert {s["participants"] for s in run.settings} == {5}
    for metrics in run.metrics:
        assert metrics["carbon_g"] == pytest.approx(400.0 * metrics["energy_high_j"] / 3.6e6)
