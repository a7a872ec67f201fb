from __future__ import annotations

from dataclasses import replace

from tests.bench.rivals.rounds import SEARCHED_ROUNDS, FixedRounds, RandomRounds, SearchedRounds
from tests.unit.policies.fedgpo.made_up import (
    CLASSES,
    MadeUp,
    federated,
    played,
    situation,
    space,
)
from tuner.core import Phase, Space, Try, setting_key

SMALL = Space(
    (
        *tuple(replace(k, values=k.values[-2:]) for k in space(("mid",)).knobs[:2]),
        replace(space(("mid",)).knobs[2], values=(1, 5)),
    )
)
LIKE = {"batch_size": 32, "local_epochs": 1}


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


def test_a_search_that_has_tried_everything_stays_with_the_best() -> None:
    at, made = federated(space=SMALL), MadeUp(noise=0.0)
    settings = list(SMALL.grid())
    everywhere = {f"{what}.{kind}": v for kind in CLASSES for what, v in LIKE.items()}
    trials = [made.round(n, {**everywhere, **s}) for n, s in enumerate(settings, 1)]
    own = [replace(t, setting=s) for t, s in zip(trials, settings, strict=True)]
    answer = SearchedRounds().suggest(situation(at, [*own, own[0], own[1]], made))
    assert isinstance(answer, Try) and "best" in answer.why
