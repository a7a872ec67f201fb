"""A federation with a real tuner: every round counts once, whichever process is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from agents.federated.embedded import (
    FederatedTuner,
    FederationSpec,
    open_connected,
    open_embedded,
)
from agents.federated.ports import RoundOutcome
from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import digits
from tests.errors import raised
from tests.integration.stage import Stage
from tests.processes import gone
from tuner.core import Origin, Setting, TuningError


def training() -> FederatedTraining:
    return FederatedTraining(digits(0), load_devices(), 0, 0.1)


def spec(of: FederatedTraining) -> FederationSpec:
    kinds = [kind.name for kind in of.devices.classes]
    return FederationSpec(name="digits", space=of.space, classes=kinds, version="1")


def rounds(tuner: FederatedTuner, of: FederatedTraining, count: int) -> list[Setting]:
    """Train some rounds like a strategy; return their settings."""
    settings = []
    for _ in range(count):
        state = of.state()
        setting = tuner.begin(state)
        result = of.run(setting)
        outcome = RoundOutcome(
            metrics=result.metrics,
            origin=Origin.ESTIMATED,
            context=state,
            seconds=result.metrics["round_s"],
        )
        tuner.end(outcome)
        settings.append(setting)
    return settings


def connected(served: Stage, of: FederatedTraining) -> FederatedTuner:
    url = f"http://127.0.0.1:{served.tuner_port}"
    return open_connected(spec(of), url, served.token_file, served.folder / "federation")


@pytest.mark.timeout(240)
def test_every_round_is_a_trial_also_those_without_a_tuner(served: Stage) -> None:
    of = training()
    tuner = connected(served, of)
    settings = rounds(tuner, of, 4)
    served.kill("tuner")
    settings += rounds(tuner, of, 3)
    served.start_tuner()
    settings += rounds(tuner, of, 2)
    tuner.close()
    trials = served.trials(tuner.study)
    assert [t["state"] for t in trials] == ["completed"] * 9
    assert [t["setting"] for t in trials] == [dict(s) for s in settings]
    accuracies = [t["metrics"]["accuracy"]["mean"] for t in trials]
    assert len(set(accuracies)) > 5 and accuracies[-1] > accuracies[0]
    assert settings[4] == settings[5] == settings[6] == settings[3], "the latest, while it is away"
    assert trials[0]["metrics"]["energy_j"]["origin"] == "estimated"
    assert {t["phase"] for t in trials} == {"tuning"}, (
        "no baseline is measured unless it is asked for"
    )
    assert served.call("GET", f"/studies/{tuner.study}")["phase"] == "tuning"


@pytest.mark.timeout(240)
def test_a_server_that_was_killed_within_a_round_is_given_it_again(served: Stage) -> None:
    of = training()
    tuner = connected(served, of)
    rounds(tuner, of, 3)
    lost = tuner.begin(of.state())  # it is never reported
    again = connected(served, of)
    assert again.study == tuner.study
    assert rounds(again, of, 2)[0] == lost
    trials = served.trials(again.study)
    assert [t["state"] for t in trials] == ["completed"] * 5
    assert trials[3]["attempt"] == 2
    again.close()
    tuner.close()


@pytest.mark.timeout(240)
def test_a_step_reported_twice_counts_once(served: Stage) -> None:
    of = training()
    tuner = connected(served, of)
    rounds(tuner, of, 2)
    served.kill("tuner")
    rounds(tuner, of, 1)
    spool = served.folder / "federation/spool"
    (waiting,) = spool.glob("*-step.json")
    twice = waiting.read_text()
    (spool / waiting.name.replace("0000", "0009", 1)).write_text(twice)
    served.start_tuner()
    tuner.close()
    assert not list(spool.glob("*.json")) and len(served.trials(tuner.study)) == 3


@pytest.mark.timeout(240)
def test_an_embedded_tuner_is_started_and_continues_in_the_same_file(tmp_path: Path) -> None:
    of, database = training(), tmp_path / "rounds.sqlite"
    first = open_embedded(spec(of), database)
    rounds(first, of, 3)
    pid = first._held._exit_callbacks[0][1].__self__._process.pid  # type: ignore[attr-defined]
    os.killpg(pid, signal.SIGKILL)
    rounds(first, of, 1)
    first.close()
    second = open_embedded(spec(of), database)
    rounds(second, of, 2)
    second.close()
    assert second.study == first.study
    with sqlite3.connect(database) as rows:
        (count,) = rows.execute("select count(*) from trials where state = 'completed'").fetchone()
    assert count == 6
    assert gone(pid)


@pytest.mark.timeout(240)
def test_a_reached_goal_ends_a_training_and_another_goal_needs_another_study(served: Stage) -> None:
    of = training()
    url, folder = f"http://127.0.0.1:{served.tuner_port}", served.folder / "federation"
    goal = ["accuracy >= 0.4"]

    def opened(objective: str = "round_s") -> FederatedTuner:
        return open_connected(
            spec(of), url, served.token_file, folder, objective=objective, constraints=goal
        )

    tuner = opened()
    while not tuner.ended and of.round < 40:
        rounds(tuner, of, 1)
        tuner.begin(of.state())
        if of.round == 2:
            served.kill("tuner")
            served.start_tuner()
            tuner.close()
            url = f"http://127.0.0.1:{served.tuner_port}"
            tuner = opened()
    assert tuner.ended and of.accuracy >= 0.4
    tuner.close()
    shown = served.call("GET", f"/studies/{tuner.study}")
    assert (shown["phase"], shown["constraints"]) == ("holding", ["accuracy >= 0.4"])
    assert "the goal is reached" in str(shown)
    again = opened()
    assert again.study != tuner.study and not again.ended
    other = opened("energy_j")
    assert other.study != again.study, "it asks for something else"
    with raised(TuningError, "participated"):
        goal.append("participated >= 5")
        opened()
    kept = served.call("GET", f"/studies/{other.study}")
    assert kept["phase"] != "stopped", "what is refused ends no training"
    other.close()
    again.close()
