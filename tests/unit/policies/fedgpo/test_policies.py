"""Promises of all these policies: pure, replayable, and a clear refusal of other spaces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.rivals import load_tuner
from tests.builders import SPACE, past
from tests.errors import raised
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, played, situation, space
from tuner.core import InvalidInput, Phase, Space, Trial, TrialState, Try, Wait, setting_key
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move

LEARNERS = ["fedgpo", "fedgpo-qlearning"]
ALL = [*LEARNERS, "fedgpo-bo", "fedgpo-fixed", "fedgpo-random"]


def begun(rounds: int = 4) -> tuple[list[Trial], MadeUp]:
    at, made = federated(), MadeUp()
    return [made.round(n, at.baseline, Phase.BASELINE) for n in range(1, rounds + 1)], made


@pytest.mark.parametrize("name", ALL)
def test_the_same_log_gives_the_same_rounds(name: str) -> None:
    trials, made = begun()
    now = situation(federated(), trials, made)
    reversed_ = situation(federated(), trials[::-1], made)
    assert load_tuner(name).suggest(now) == load_tuner(name).suggest(reversed_)


@pytest.mark.parametrize("name", ALL)
def test_a_space_that_is_not_a_federation_is_refused(name: str) -> None:
    trials, made = begun()
    with raised(InvalidInput, "participants"):
        load_tuner(name).suggest(situation(federated(space=SPACE), trials, made))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("metric", ["latency_p99_ms", "energy_high_j"])
def test_a_limit_that_is_not_supported_is_refused_in_a_study_too(name: str, metric: str) -> None:
    trials, made = begun()
    at = federated(constraints=("accuracy >= 0.9", f"{metric} <= 1"))
    with raised(InvalidInput, f"{metric} <= 1"):
        load_tuner(name).suggest(situation(at, trials, made))


@pytest.mark.parametrize("name", ALL)
def test_a_baseline_is_measured_only_for_a_relative_limit(name: str) -> None:
    policy = load_tuner(name)
    cold, constraints = federated(phase=Phase.BASELINE), ("round_s <= 2x baseline",)
    relative = federated(phase=Phase.BASELINE, constraints=constraints)
    assert (
        isinstance(step := next_step(past(cold, []), policy), Move) and step.phase is Phase.TUNING
    )
    assert isinstance(next_step(past(replace(cold, phase=Phase.TUNING), []), policy), Assign)
    assert isinstance(first := next_step(past(relative, []), policy), Assign)
    assert setting_key(first.setting) == setting_key(relative.baseline)


@pytest.mark.parametrize("name", ALL)
def test_a_goal_that_is_reached_ends_the_training_and_only_then(name: str) -> None:
    at, made = federated(constraints=("accuracy >= 0.9",)), MadeUp(noise=0.0)
    best = {**at.baseline, "participants": 10}
    trials: list[Trial] = []
    while len(trials) < 100:
        step = next_step(situation(at, trials, made), load_tuner(name))
        if not isinstance(step, Assign):
            break
        trials.append(made.round(len(trials) + 1, best))
    assert isinstance(step, Move) and step.phase is Phase.HOLDING and step.plan is not None
    assert "the goal is reached" in step.why
    assert [t.shown["accuracy"].mean >= 0.9 for t in trials[-4:]].count(True) in (2, 3)


@pytest.mark.parametrize("name", ALL)
def test_a_running_round_is_waited_for(name: str) -> None:
    at, (trials, _) = federated(), begun()
    running = replace(trials[-1], state=TrialState.RUNNING, measurement=None, phase=Phase.TUNING)
    assert isinstance(load_tuner(name).suggest(past(at, [*trials[:-1], running])), Wait)


@pytest.mark.parametrize("name", ALL)
def test_rounds_that_all_failed_cause_no_error(name: str) -> None:
    trials, made = begun()
    failed = [replace(t, state=TrialState.FAILED, measurement=None) for t in trials[2:]]
    answer = load_tuner(name).suggest(situation(federated(), [*trials[:2], *failed], made))
    assert isinstance(answer, Try)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_missing_state_is_not_an_error(name: str) -> None:
    trials, _ = begun()
    assert isinstance(load_tuner(name).suggest(past(federated(), trials)), Try)


@pytest.mark.parametrize("name", ALL)
def test_a_single_class_is_a_federation(name: str) -> None:
    at = federated(space=space(("mid",)))
    trials, made = begun()
    own = [replace(t, setting=at.baseline) for t in trials]
    answer = load_tuner(name).suggest(situation(at, own, made))
    assert isinstance(answer, Try) and answer.setting.keys() == at.baseline.keys()


def test_the_bandit_needs_a_fourth_of_the_energy_of_the_defaults_and_less_than_random() -> None:
    def joules(name: str) -> float:
        return sum(played(load_tuner(name), federated(seed), 40)[1] for seed in (0, 1))

    ours = joules("fedgpo")
    assert ours < 0.25 * joules("fedgpo-fixed") and ours < 0.5 * joules("fedgpo-random")


def test_q_learning_beats_the_defaults() -> None:
    both = [
        sum(played(load_tuner(name), federated(seed), 60)[1] for seed in range(3))
        for name in ("fedgpo-qlearning", "fedgpo-fixed")
    ]
    assert both[0] < 0.7 * both[1]


def test_a_large_space_is_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(of: Space) -> None:
        raise AssertionError(f"somebody enumerates {of.size} settings")

    many = tuple(f"class{i}" for i in range(8))
    at = federated(space=space(many))
    trials, made = begun()
    own = [replace(t, setting=at.baseline) for t in trials]
    monkeypatch.setattr(Space, "grid", refused)
    for name in ALL:
        assert isinstance(load_tuner(name).suggest(situation(at, own, made)), Try)
