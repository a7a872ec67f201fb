"""The contract of every policy: a class of tests; a subclass gives the fixture `policy`."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest

from tests.builders import (
    CLOCKS,
    SPACE,
    asked,
    baseline,
    knob,
    past,
    setting,
    surface,
    trial,
    window,
)
from tuner.core import (
    Done,
    Limit,
    MetricUnavailable,
    Objective,
    Phase,
    Policy,
    Space,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
)

FEW = asked(8)
"""Fewer trials than the space has settings: the number of trials ends the study."""
ALL = asked(12)
"""More trials than the space has settings: the space ends the study."""


@dataclass(frozen=True)
class Played:
    """A study that was played to its end. Each answer follows from the trials before it."""

    trials: tuple[Trial, ...]
    answers: tuple[Suggestion, ...]

    @property
    def done(self) -> Done:
        last = self.answers[-1]
        assert isinstance(last, Done)
        return last


Plays = Callable[[Study], Played]


class PolicyContract:
    """A policy is a pure function of the past that stays in the space and comes to an end."""

    @pytest.fixture
    def policy(self) -> Policy:
        """Return the policy under test."""
        raise AssertionError("a subclass gives the policy")

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls) -> dict[str, Played]:
        """Hold the studies that the tests of one policy share."""
        return {}

    @pytest.fixture
    def played(self, policy: Policy, kept: dict[str, Played]) -> Plays:
        """Return a function that plays a study by the policy, once for all tests."""

        def play(at: Study) -> Played:
            if repr(at) not in kept:
                kept[repr(at)] = self.play_all(policy, at)
            return kept[repr(at)]

        return play

    def play_all(self, policy: Policy, at: Study, most: int = 40) -> Played:
        """Let the policy tune on the surface until it is done."""
        trials, answers = baseline(at), list[Suggestion]()
        for _ in range(most):
            answers.append(answer := policy.suggest(past(at, trials)))
            if isinstance(answer, Done):
                return Played(tuple(trials), tuple(answers))
            assert isinstance(answer, Try)
            trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
        raise AssertionError("the policy does not come to an end")

    def play(self, policy: Policy, at: Study) -> tuple[list[Trial], Done]:
        """Play a study again; return its trials and its last answer."""
        all_of_it = self.play_all(policy, at)
        return [*all_of_it.trials], all_of_it.done

    def test_it_stays_in_the_space_and_within_its_trials(self, played: Plays) -> None:
        few = played(FEW)
        for tried in few.trials:
            SPACE.check(tried.setting)
        assert sum(t.phase is Phase.TUNING for t in few.trials) <= 8
        for row in few.done.plan.rows:
            SPACE.check(row.setting)

    def test_the_same_past_gives_the_same_suggestion(self, policy: Policy, played: Plays) -> None:
        few = played(FEW)
        again = type(policy)()
        # Backwards, because an instance that remembers a call would change its next answer.
        for before, answer in reversed([*enumerate(few.answers, len(baseline(FEW)))]):
            assert again.suggest(past(FEW, list(deepcopy(few.trials[:before])))) == answer

    def test_it_changes_none_of_its_arguments(self, policy: Policy, played: Plays) -> None:
        given = past(FEW, list(played(FEW).trials[:4]))
        before = deepcopy(given)
        policy.suggest(given)
        assert given == before

    def test_every_suggestion_has_a_reason(self, played: Plays) -> None:
        assert all(answer.why for answer in played(FEW).answers)

    def test_it_ends_with_the_best_feasible_setting_it_measured(self, played: Plays) -> None:
        everything = played(ALL)
        limit = 1.2 * surface(setting()).estimates["latency_p99_ms"].mean
        feasible = {
            setting_key(t.setting): surface(t.setting).estimates["energy_j"].mean
            for t in everything.trials
            if surface(t.setting).estimates["latency_p99_ms"].high <= limit
        }
        held = setting_key(everything.done.plan.rows[0].setting)
        assert feasible[held] == min(feasible.values())

    def test_a_running_trial_is_not_suggested_again(self, policy: Policy) -> None:
        at = asked(6)
        first = policy.suggest(past(at, baseline(at)))
        assert isinstance(first, Try)
        running = trial(3, first.setting, state=TrialState.RUNNING)
        second = policy.suggest(past(at, [*baseline(at), running]))
        assert isinstance(second, Try | Wait)
        if isinstance(second, Try):
            assert setting_key(second.setting) != setting_key(first.setting)

    def test_a_proven_infeasible_setting_is_not_tried_again(self, played: Plays) -> None:
        limit = 1.2 * surface(setting()).estimates["latency_p99_ms"].mean
        proven: set[object] = set()
        for tried in played(ALL).trials:
            assert setting_key(tried.setting) not in proven
            if surface(tried.setting).estimates["latency_p99_ms"].low > limit:
                proven.add(setting_key(tried.setting))

    @pytest.mark.parametrize(
        "state",
        [
            TrialState.FAILED,
            TrialState.CONTAMINATED,
            TrialState.ABORTED,
            TrialState.INCONCLUSIVE,
        ],
    )
    def test_trials_that_went_wrong_are_survived(self, policy: Policy, state: TrialState) -> None:
        at = asked(8)
        wrong = [trial(n, setting(CLOCKS[n % 4], 2), state=state) for n in (3, 4, 5)]
        answer = policy.suggest(past(at, [*baseline(at), *wrong]))
        assert isinstance(answer, Try | Done)

    def test_a_window_cut_short_is_survived(self, policy: Policy) -> None:
        at = asked(8)
        cut = trial(3, setting(400), window(3.0, 150.0), broke=Limit("latency_p99_ms", "<=", 120.0))
        answer = policy.suggest(past(at, [*baseline(at), cut]))
        assert isinstance(answer, Try)
        assert setting_key(answer.setting) != setting_key(setting(400))

    def test_a_constant_objective_ends_with_the_measured_settings(self, policy: Policy) -> None:
        at = asked(6)
        trials = baseline(at, window())
        for _ in range(10):
            answer = policy.suggest(past(at, trials))
            if isinstance(answer, Done):
                break
            assert isinstance(answer, Try)
            trials.append(trial(len(trials) + 1, answer.setting, window()))
        assert isinstance(answer, Done)
        measured = {setting_key(t.setting) for t in trials}
        assert {setting_key(row.setting) for row in answer.plan.rows} <= measured

    @pytest.mark.parametrize("clock", [1000, 800])
    def test_two_hundred_windows_of_one_setting_are_survived(
        self, policy: Policy, clock: int
    ) -> None:
        at = asked(220)
        same = [trial(n, setting(clock), surface(setting(clock))) for n in range(3, 203)]
        answer = policy.suggest(past(at, [*baseline(at), *same]))
        assert isinstance(answer, Try)
        assert setting_key(answer.setting) != setting_key(setting(clock))

    def test_a_limit_on_an_unmeasured_metric_is_answered(self, policy: Policy) -> None:
        at = asked(3, constraints=("queue_ms <= 3",))
        trials = baseline(at)
        try:
            while isinstance(answer := policy.suggest(past(at, trials)), Try):
                SPACE.check(answer.setting)
                trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
        except MetricUnavailable as refused:
            assert "queue_ms" in str(refused)
        else:
            assert isinstance(answer, Done)
            assert [row.setting for row in answer.plan.rows] == [at.baseline]
            assert answer.why

    def test_if_nothing_is_feasible_it_ends_with_the_baseline(self, policy: Policy) -> None:
        at = asked(6, constraints=("latency_p99_ms <= 1",))
        trials = baseline(at)
        for _ in range(10):
            answer = policy.suggest(past(at, trials))
            if isinstance(answer, Done):
                break
            assert isinstance(answer, Try)
            trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
        assert isinstance(answer, Done)
        assert [row.setting for row in answer.plan.rows] == [at.baseline]

    def test_a_knob_with_one_value_does_no_harm(self, policy: Policy) -> None:
        fixed = Space((*SPACE.knobs, knob("fan", (1,), 1)))
        at = replace(asked(3), space=fixed)
        answer = policy.suggest(past(at, baseline(at, surface(setting()))))
        assert isinstance(answer, Try)
        assert answer.setting["fan"] == 1

    def test_only_listed_combinations_are_suggested(self, policy: Policy) -> None:
        listed = (setting(), setting(800, 2), setting(600, 4))
        at = replace(asked(5), space=Space(SPACE.knobs, listed))
        trials, _ = self.play(policy, at)
        allowed = {setting_key(s) for s in listed}
        assert {setting_key(t.setting) for t in trials} <= allowed

    def test_an_empty_list_of_constraints_is_accepted(self, policy: Policy) -> None:
        trials, done = self.play(policy, asked(6, constraints=()))
        least = min(surface(t.setting).estimates["energy_j"].mean for t in trials)
        held = surface(done.plan.rows[0].setting).estimates["energy_j"].mean
        assert held == pytest.approx(least)

    def test_an_objective_to_maximize_is_maximized(self, policy: Policy) -> None:
        at = replace(asked(6, constraints=()), objective=Objective("energy_j", "maximize"))
        trials, done = self.play(policy, at)
        best = max(surface(t.setting).estimates["energy_j"].mean for t in trials)
        held = surface(done.plan.rows[0].setting).estimates["energy_j"].mean
        assert held == pytest.approx(best)
