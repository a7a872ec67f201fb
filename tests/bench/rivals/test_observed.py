"""The past as a tuner sees it that trusts the means."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.rivals.observed import Observed, observed
from tests.builders import SPACE, asked, baseline, knob, past, setting, study, trial, window
from tuner.core import (
    Condition,
    Done,
    Knob,
    Limit,
    Objective,
    Phase,
    Setting,
    Space,
    TrialState,
    Wait,
    setting_key,
)


def test_before_the_baseline_there_is_nothing_to_choose_by() -> None:
    assert isinstance(observed(past(asked(4), [])), Wait)


def test_means_become_losses_and_breaches() -> None:
    at = asked(4)
    trials = [*baseline(at, window(10.0, 100.0)), trial(3, setting(800), window(8.0, 132.0))]
    seen = observed(past(at, trials))
    assert isinstance(seen, Observed)
    first, second = seen.seen.values()
    assert first.setting == at.baseline
    assert (second.loss, second.feasible) == (8.0, False)
    assert second.breaches == pytest.approx((math.log(132.0 / 120.0),))
    assert seen.spent == 1
    assert len(seen.some_untried(SPACE.size, 0)) == SPACE.size - 2


def test_a_lower_limit_and_an_objective_to_maximize_are_turned() -> None:
    at = replace(
        asked(4, constraints=("energy_j >= 9",)), objective=Objective("latency_p99_ms", "maximize")
    )
    seen = observed(past(at, [*baseline(at, window(10.0, 100.0))]))
    assert isinstance(seen, Observed)
    (only,) = seen.seen.values()
    assert only.loss == -100.0
    assert only.breaches == pytest.approx((math.log(9.0 / 10.0),))


def test_the_best_mean_within_the_limits_is_deployed_proven_or_not() -> None:
    at = asked(2)
    edge = trial(3, setting(800), window(8.0, 119.9, relative=0.05))
    beyond = trial(4, setting(600), window(7.0, 120.1, relative=0.05))
    done = observed(past(at, [*baseline(at, window(10.0, 100.0)), edge, beyond]))
    assert isinstance(done, Done)
    assert done.plan.rows[0].setting == setting(800)


def test_a_window_cut_short_is_not_deployed() -> None:
    at = asked(1)
    cut = trial(3, setting(800), window(5.0, 110.0), broke=Limit("latency_p99_ms", "<=", 105.0))
    done = observed(past(at, [*baseline(at, window(10.0, 100.0)), cut]))
    assert isinstance(done, Done)
    assert done.plan.rows[0].setting == at.baseline


def test_a_metric_at_zero_is_far_within_its_limit() -> None:
    at = study(constraints=("latency_p99_ms <= 50", "energy_j <= 20"))
    trials = [trial(n, at.baseline, window(10.0, 0.0), phase=Phase.BASELINE) for n in (1, 2)]
    seen = observed(past(at, trials))
    assert isinstance(seen, Observed)
    (only,) = seen.seen.values()
    assert only.feasible
    assert all(math.isfinite(b) for b in only.breaches)


def test_running_settings_are_not_chosen_again_but_aborted_ones_may_be() -> None:
    at = asked(4)
    running = trial(3, setting(800), state=TrialState.RUNNING)
    aborted = trial(4, setting(600), state=TrialState.ABORTED)
    seen = observed(past(at, [*baseline(at), running, aborted]))
    assert isinstance(seen, Observed)
    assert not seen.untried(setting(800))
    assert seen.untried(setting(600))
    assert seen.spent == 1
    last = observed(past(asked(1), [*baseline(at), running]))
    assert isinstance(last, Wait)


LADDERS = Space(
    (knob("a", tuple(range(5)), 4), knob("fan", ("auto",), "auto"), knob("b", (1, 2, 4, 8), 8))
)
HUGE = Space(tuple(knob(f"k{i}", tuple(range(10)), 9) for i in range(6)))


def some_tried(space: Space, tried: list[Setting]) -> Observed:
    return Observed(space, {}, frozenset(setting_key(s) for s in tried), len(tried))


@settings(deadline=None)
@given(st.integers(0, 19), st.integers(0, 2**32), st.sampled_from([1, 3]), st.booleans())
def test_the_nearest_is_the_same_as_by_a_full_search(
    count: int, seed: int, length: int, listed: bool
) -> None:
    chance, every = random.Random(seed), list(LADDERS.grid())
    at, lengths = chance.choice(every), {"a": 4, "fan": 1, "b": length}
    holes = [s for s in every if s == LADDERS.default or chance.random() < 0.7]
    space = Space(LADDERS.knobs, tuple(holes) if listed else ())
    seen = some_tried(space, chance.sample(list(space.grid()), min(count, space.size - 1)))

    def away(there: Setting) -> float:
        return sum(abs(k.index(there[k.name]) - k.index(at[k.name])) / lengths[k.name]
                   for k in space.knobs)  # fmt: skip

    best = min((s for s in space.grid() if seen.untried(s)), key=away)
    nearest, distance = seen.nearest(at, lengths)
    assert (nearest, distance) == (best, away(best))


def test_a_large_space_leaves_a_sample_without_the_tried_settings() -> None:
    tried = [HUGE.default, {**HUGE.default, "k0": 0}]
    seen = some_tried(HUGE, tried)
    sample = seen.some_untried(1000, seed=1)
    assert len({setting_key(s) for s in sample}) == 1000
    assert all(seen.untried(s) for s in sample)
    for drawn in sample:
        HUGE.check(drawn)
    assert {s["k0"] for s in sample} == {s["k5"] for s in sample} == set(range(10))
    assert sample == seen.some_untried(1000, seed=1) != seen.some_untried(1000, seed=2)


def test_settings_without_an_effect_are_not_left_to_try() -> None:
    when = Condition.parse("a > 0")
    bound = Knob("b", (1, 2, 3), 1, condition=when)
    space = Space((Knob("a", (0, 1), 0), bound, Knob("c", tuple(range(9)), 0)))
    seen = Observed(space, {}, frozenset({setting_key(space.default)}), 1)
    for most in (100, 20):
        left = seen.some_untried(most, 0)
        assert left and all(space.canonical(s) == s for s in left)
        assert len({setting_key(s) for s in left}) == len(left) <= most
    near, _ = seen.nearest({"a": 0, "b": 2, "c": 0}, {"a": 1, "b": 1, "c": 1})
    space.check(near)


def test_a_sample_of_nearly_all_settings_leaves_some() -> None:
    every = list(LADDERS.grid())
    left = some_tried(LADDERS, every[:-1]).some_untried(5, seed=0)
    assert left == [every[-1]]
