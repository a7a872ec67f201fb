"""Suggestions beside running trials: spread out, and no riskier than without those trials."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from policies.polythrottle.policy import Polythrottle
from policies.sobol import Sobol
from tests.builders import baseline, past, surface, trial
from tests.unit.tuner.bo.searches import seen
from tests.unit.tuner.bo.test_suggest import FINE, fine, go_on
from tuner.bo.encoding import MOST_ROWS, enumerate_grid
from tuner.bo.explore import MOSTLY_NARROWED, Rules, explore
from tuner.bo.suggest import search_of, suggest
from tuner.core import (
    ExploresApart,
    Policy,
    Setting,
    Space,
    Study,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
)


def running(number: int, at: Setting) -> Trial:
    return trial(number, at, state=TrialState.RUNNING)


def picks(
    at: Study, trials: list[Trial], count: int, policy: Policy | None = None
) -> list[Setting]:
    """Return the settings given to several devices one after the other, before any trial ends."""
    settings = []
    for _ in range(count):
        answer = (policy or Polythrottle()).suggest(past(at, trials))
        assert isinstance(answer, Try), answer
        settings.append(answer.setting)
        trials = [*trials, running(len(trials) + 1, answer.setting)]
    return settings


def apart(at: Study, one: Setting, other: Setting) -> float:
    grid = enumerate_grid(at.space)
    rows = [grid.rows[setting_key(s)] for s in (one, other)]
    return float(torch.dist(grid.points[rows[0]], grid.points[rows[1]]))


@pytest.mark.parametrize("policy", [Polythrottle(), Sobol()])
def test_no_setting_is_tried_by_two_devices_at_once(policy: Policy) -> None:
    assert isinstance(policy, ExploresApart)
    assert policy.explores_apart
    settings = picks(fine(), baseline(fine()), 2, policy)
    assert len({setting_key(s) for s in settings}) == 2


def test_settings_beside_running_trials_are_spread() -> None:
    """With masking alone, the next settings would be neighbours of the best, one rung from each other."""
    at, trials = fine(), baseline(fine())
    first, second = picks(at, trials, 2)
    grid = enumerate_grid(at.space)
    taken = grid.rows[setting_key(first)]
    masked = search_of(past(at, trials), lambda s: s != first)
    neighbour = explore(masked)
    assert neighbour is not None
    assert apart(at, first, neighbour.setting) < apart(at, first, second)
    assert taken != grid.rows[setting_key(second)]


@pytest.mark.parametrize("measured", [0, 2, 5])
def test_a_risk_is_judged_as_if_no_other_trial_ran(measured: int) -> None:
    trials = go_on(fine(), baseline(fine()), measured)
    alone = seen(fine(), trials)
    (first,) = picks(fine(), trials, 1)
    beside = search_of(past(fine(), [*trials, running(90, first)]))
    assert torch.equal(alone.chance, beside.chance)
    assert beside.ended == alone.ended == measured


def test_running_trials_are_expected_to_match_their_predictions() -> None:
    trials = go_on(fine(), baseline(fine()), 3)
    (first,) = picks(fine(), trials, 1)
    search = search_of(past(fine(), [*trials, running(90, first)]))
    row = search.grid.rows[setting_key(first)]
    view, ahead = search.view, search.view.ahead
    assert view.running == (row,)
    assert float(ahead.cost[row]) == pytest.approx(float(view.cost[row]), abs=0.01)
    assert float(ahead.cost_sd[row]) < float(view.cost_sd[row])


def test_without_running_trials_nothing_is_expected() -> None:
    search = seen(fine(), go_on(fine(), baseline(fine()), 3))
    assert search.view.ahead is search.view
    assert search.view.running == ()


def test_settings_informed_by_running_trials_are_not_tried() -> None:
    trials = baseline(fine())
    settings = picks(fine(), trials, 1)
    search = search_of(past(fine(), [*trials, running(3, settings[0])]))
    left = (search.view.ahead.cost_sd / search.view.cost_sd) ** 2
    narrowed = left < 1.0 / MOSTLY_NARROWED
    assert narrowed.any() and not narrowed.all()
    assert not Rules(search).gain[narrowed & Rules(search).unmeasured].any()


def test_at_the_end_it_waits_for_running_trials() -> None:
    at = fine(3)
    trials = go_on(at, baseline(at), 2)
    answer = suggest(past(at, [*trials, running(5, {"gpu.clock_mhz": 700, "batch_size": 1})]))
    assert isinstance(answer, Wait)


def test_the_same_past_gives_the_same_choice() -> None:
    trials = go_on(fine(), baseline(fine()), 2)
    assert picks(fine(), trials, 3) == picks(fine(), trials, 3)


def test_in_a_space_too_large_to_list_running_settings_are_included() -> None:
    clock, batch = FINE.knobs
    wide = tuple(range(1, MOST_ROWS // len(batch.values) + 500))
    space = Space((replace(clock, values=wide, default=wide[-1]), batch))
    at = replace(fine(), space=space)
    assert space.size > MOST_ROWS
    trials = baseline(at, surface({"gpu.clock_mhz": 1000, "batch_size": 1}))
    odd = {"gpu.clock_mhz": 777, "batch_size": 2}
    search = search_of(past(at, [*trials, running(3, odd)]))
    assert search.view.running == (search.grid.rows[setting_key(odd)],)
