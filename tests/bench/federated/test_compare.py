from __future__ import annotations

import json
from pathlib import Path

import pytest

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.task import digits
from tests.bench.federated import compare
from tests.bench.federated.command import federated
from tests.bench.federated.judge import best_of, judged
from tests.bench.federated.play import Played
from tests.bench.federated.setups import FederationSetup, by_name, federations
from tuner.core import InvalidInput

HELD = {"participants": 10, "batch_size": 8}


def small() -> FederationSetup:
    return FederationSetup(digits, None, load_devices(), rounds=6, clients=20, participants=(10,))


@pytest.mark.timeout(180)
def test_a_recipe_is_judged_and_its_fixed_settings_are_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "SEEDS", (0, 1))
    output, cache = tmp_path / "found.json", tmp_path / "cache"
    for _ in range(2):
        federated(output, cache, None, "", [f"{__name__}:small"], False, False)
    assert len(list(cache.glob("*.json"))) == 9 * 2
    written = json.loads(output.read_text(encoding="utf-8"))
    (one,) = written["federations"]
    arms = {arm["name"]: arm for arm in one["arms"]}
    assert one["best_fixed"]["local_epochs"] > 1 and arms["best fixed setting"]["reached"] == 2
    assert arms["Flower's defaults"]["saving"] == {"mean": 1.0, "stderr": 0.0}
    assert [j["objective"] for j in one["judged"]] == ["energy_j", "round_s", "carbon_g"]
    ratio = arms["fedgpo"]["energy_j"]["mean"] / arms["best fixed setting"]["energy_j"]["mean"]
    assert one["judged"][0]["ratio"] == pytest.approx(ratio) == written["judged"]["energy_mean"]
    assert len(one["curves"]["fedgpo"]) == len(one["settings"])


def run(*accuracies: float, joules: float = 10.0, seconds: float = 1.0) -> Played:
    metrics = tuple({"accuracy": a, "energy_j": joules, "round_s": seconds} for a in accuracies)
    return Played(({},) * len(metrics), metrics, 0.0)


def test_the_best_fixed_setting_is_the_cheapest_of_those_that_get_there_most_often() -> None:
    never, dear = [run(0.1, 0.1, 0.1, joules=1.0)] * 2, [run(0.9, 0.9, 0.9)] * 2
    once = [run(0.9, 0.9, 0.9, joules=2.0), never[0]]
    assert best_of([never, once, dear], 0.5, "energy_j") == 2
    assert best_of([never, once], 0.5, "energy_j") == 1


@pytest.mark.parametrize(
    ("ours", "kept"),
    [
        (run(0.9, 0.9, 0.9, joules=13.0), True),
        (run(0.9, 0.9, 0.9, joules=14.0), False),
        (run(0.9, 0.9, 0.9, joules=9.0, seconds=1.1), False),
        (run(0.1, 0.1, 0.1, joules=9.0), False),
    ],
    ids=["kept", "more joules", "slower than the defaults", "not reached"],
)
def test_broken_requirements_are_found(ours: Played, kept: bool) -> None:
    usual = run(0.9, 0.9, 0.9)
    judgement = judged("energy_j", 0.8, [HELD], [[usual]], [ours], [usual], [usual])
    assert judgement.kept is kept and judgement.best_fixed == HELD


def test_there_are_five_and_controls() -> None:
    assert len(federations()) == 5 < len(federations(controls=True))
    sensors = federations()["sensors, α = 0.3"].training(0)
    assert len(sensors.fleet) == 60 and sensors.task.classes == 6


def test_a_recipe_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no recipe"):
        by_name("tests.bench.federated.setups:nobody")
