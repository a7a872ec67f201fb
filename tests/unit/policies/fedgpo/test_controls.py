from __future__ import annotations

from policies.fedgpo.controls import SEARCHED_ROUNDS, FixedRounds, RandomRounds, SearchedRounds
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, played, situation
from tuner.core import Phase, setting_key


def test_fixed_rounds_are_all_the_baseline() -> None:
    at = federated()
    trials, _ = played(FixedRounds(), at, 6)
    assert {setting_key(t.setting) for t in trials} == {setting_key(at.baseline)}


def test_random_rounds_differ_by_round_and_seed_only() -> None:
    first, again, other = (
        [setting_key(t.setting) for t in played(RandomRounds(), federated(seed), 12)[0]]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(set(first)) > 6


def test_a_search_stays_with_the_best_it_found() -> None:
    at, made = federated(), MadeUp(noise=0.0)
    trials = [made.round(n, at.baseline, Phase.BASELINE) for n in (1, 2)]
    dear = {**at.baseline, "participants": 50}
    cheap = {**at.baseline, "participants": 10, "local_epochs.high": 5}
    for number in range(3, SEARCHED_ROUNDS + 1):
        trials.append(made.round(number, cheap if number == 9 else dear))
    answer = SearchedRounds().suggest(situation(at, trials, made))
    assert answer.setting == cheap  # type: ignore[union-attr]
