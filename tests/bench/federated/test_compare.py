from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.task import digits
from tests.bench.federated.command import federated
from tests.bench.federated.judge import best_of, judged
from tests.bench.federated.play import Played
from tests.bench.federated.recipes import federations
from tests.bench.federated.setups import FederationSetup, by_name
from tuner.core import InvalidInput

HELD = {"participants": 10, "batch_size": 8}


def small() -> FederationSetup:
    grams = {"high": 480.0, "mid": 250.0, "low": 60.0}
    setup = FederationSetup(digits, None, load_devices(), rounds=6, clients=20, participants=(10,))
    return replace(setup, g_per_kwh=grams, unlike=True)


@pytest.mark.timeout(180)
def test_a_recipe_is_judged_and_its_fixed_settings_are_run_once(tmp_path: Path) -> None:
    output, cache = tmp_path / "found.json", tmp_path / "cache"
    for _ in range(2):
        federated(output, cache, None, "", [f"{__name__}:small"], seeds=2, jobs=1)
    assert 9 < len(list(cache.glob("*.json"))) <= 9 * 2, "hopeless settings are not run again"
    written = json.loads(output.read_text(encoding="utf-8"))
    (one,) = written["federations"]
    joules, seconds, grams = one["judged"]
    assert joules["best_fixed"]["local_epochs"] > 1 and joules["possible"] == 2
    assert [j["objective"] for j in (joules, seconds, grams)] == ["energy_j", "round_s", "carbon_g"]
    assert len(joules["by_seed"]) == 2 and len(one["forecasts"]) == 3 * 2
    assert written["groups"][0]["mean"] == joules["ratio"]
    assert [j["alike"] is None for j in one["judged"]] == [True, False, True]
    assert len(one["curves"]["fedgpo"]) == len(one["settings"])


def run(*accuracies: float, joules: float = 10.0, seconds: float = 1.0) -> Played:
    metrics = tuple({"accuracy": a, "energy_j": joules, "round_s": seconds} for a in accuracies)
    return Played(({},) * len(metrics), metrics, 0.0)


def test_the_best_fixed_setting_is_the_cheapest_with_misses_counted_as_twice_all_rounds() -> None:
    never, dear = [run(0.1, 0.1, 0.1, joules=6.0)] * 2, [run(0.9, 0.9, 0.9)] * 2
    once = [run(0.9, 0.9, 0.9, joules=2.0), run(0.1, 0.1, 0.1, joules=8.0)]
    assert best_of([never, once, dear], 0.5, "energy_j") == 1
    assert best_of([never, dear], 0.5, "energy_j") == 1


@pytest.mark.parametrize(
    ("ours", "ratio", "missed", "late"),
    [
        (run(0.9, 0.9, 0.9, joules=13.0), 1.3, (), ()),
        (run(0.1, 0.1, 0.1, joules=9.0), 1.8, (0,), ()),
    ],
    ids=["kept", "not reached"],
)
def test_a_training_is_judged_and_a_miss_counts_twice(
    ours: Played, ratio: float, missed: tuple[int, ...], late: tuple[int, ...]
) -> None:
    usual = run(0.9, 0.9, 0.9)
    judgement = judged("energy_j", 0.8, 4, [HELD], [[usual]], [ours], [usual], [ours])
    assert judgement.ratio == pytest.approx(ratio) and judgement.alike == 1.0
    assert (judgement.missed, judgement.missed_late) == (missed, late)
    late_only = judged("energy_j", 0.8, 3, [HELD], [[usual]], [ours], [usual])
    assert (late_only.missed, late_only.missed_late) == (late, missed)


def test_a_seed_that_no_fixed_setting_brings_to_the_target_does_not_count() -> None:
    usual, hopeless = run(0.9, 0.9, 0.9), run(0.1, 0.1, 0.1)
    judgement = judged(
        "energy_j", 0.8, 4, [HELD], [[usual, hopeless]], [usual, hopeless], [usual, hopeless]
    )
    assert judgement.possible == 1 and judgement.by_seed == (1.0,) and not judgement.missed


def test_a_third_of_the_federations_or_more_only_judge() -> None:
    table = federations()
    assert len(table) >= 12 and sum(one.judges for one in table.values()) >= len(table) // 3


def test_a_recipe_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no recipe"):
        by_name("tests.bench.federated.setups:nobody")
