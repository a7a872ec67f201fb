"""What a tuner sees that believes its means."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.builders import SPACE, setting, study, trial, window
from tests.contracts.policy import asked, baseline, past
from tuner.core import Done, Limit, Objective, Phase, TrialState, Wait, setting_key
from tuner.observed import Observed, observed


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
    assert len(seen.untried) == SPACE.size - 2


def test_a_lower_limit_and_an_objective_to_maximize_are_turned() -> None:
    at = replace(
        asked(4, constraints=("energy_j >= 9",)), objective=Objective("latency_p99_ms", "maximize")
    )
    seen = observed(past(at, [*baseline(at, window(10.0, 100.0))]))
    assert isinstance(seen, Observed)
    (found,) = seen.seen.values()
    assert found.loss == -100.0
    assert found.breaches == pytest.approx((math.log(9.0 / 10.0),))


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
    (found,) = seen.seen.values()
    assert found.feasible
    assert all(math.isfinite(b) for b in found.breaches)


def test_what_runs_is_not_chosen_again_and_what_was_aborted_may_be() -> None:
    at = asked(4)
    running = trial(3, setting(800), state=TrialState.RUNNING)
    aborted = trial(4, setting(600), state=TrialState.ABORTED)
    seen = observed(past(at, [*baseline(at), running, aborted]))
    assert isinstance(seen, Observed)
    untried = {setting_key(s) for s in seen.untried}
    assert setting_key(setting(800)) not in untried
    assert setting_key(setting(600)) in untried
    assert seen.spent == 1
    last = observed(past(asked(1), [*baseline(at), running]))
    assert isinstance(last, Wait)
