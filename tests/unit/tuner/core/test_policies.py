"""The past of a study, as a decision reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.builders import asked, baseline, past, setting, trial, window
from tuner.core import (
    ANYWHERE,
    Constraint,
    Context,
    Estimate,
    Limit,
    Objective,
    Past,
    Space,
    TrialState,
    incumbent,
    weigh,
)


def test_a_past_has_the_trials_that_still_count_in_order_of_number() -> None:
    at = asked(4)
    trials = [trial(4, setting(600), window(7.0, 90.0)), *baseline(at)]
    assert [t.number for t in past(at, trials).trials] == [1, 2, 4]
    assert [t.number for t in past(replace(at, since_trial=2), trials).trials] == [2, 4]


def test_derived_values_of_a_past_are_computed_once() -> None:
    at = asked(4)
    seen = past(at, [*baseline(at), trial(3, setting(600), window(7.0, 90.0))])
    assert seen.evidence is seen.evidence
    assert seen.evidence == weigh(at, seen.trials)
    best = incumbent(at, seen.evidence)
    assert best is not None
    assert best.setting == setting(600)


def test_a_trial_ended_from_outside_is_not_spent() -> None:
    at = asked(4)
    ended = trial(4, setting(800), state=TrialState.ABORTED)
    seen = past(at, [*baseline(at), trial(3, setting(600), window()), ended])
    assert (seen.spent, seen.left, seen.running) == (1, 3, False)
    begun = trial(5, setting(800), state=TrialState.RUNNING)
    assert past(at, [*seen.trials, begun]).running


def test_a_trial_of_a_setting_offered_no_more_is_spent_and_shows_nothing() -> None:
    at = asked(4)
    clock, *others = at.space.knobs
    narrowed = replace(at, space=Space((replace(clock, values=(800, 1000)), *others)))
    trials = [*baseline(at), trial(3, setting(600), window()), trial(4, setting(800), window())]
    seen = past(narrowed, trials)
    assert [t.number for t in seen.trials] == [1, 2, 4]
    assert (seen.spent, seen.left) == (2, 2)
    assert replace(seen, context={"price": 0.3}).spent == 2


def test_limits_are_known_once_the_baseline_shows_them_and_the_objective() -> None:
    at = replace(asked(4), constraints=(Constraint("latency_p99_ms", "<=", 50.0),))
    assert past(at, []).limits is None
    assert past(at, baseline(at)).limits == (Limit("latency_p99_ms", "<=", 50.0),)
    elsewhere = replace(at, objective=Objective("cpu_time_ms"))
    assert past(elsewhere, baseline(at)).limits is None


class ByPrice(Objective):
    """An objective that is undefined without a price."""

    __slots__ = ()

    def score(self, shown: Mapping[str, Any], context: Context = ANYWHERE) -> Any:  # noqa: ANN401
        return Estimate(context["price"]) if "price" in context else None


@pytest.mark.parametrize(("context", "known"), [({}, False), ({"price": 0.3}, True)])
def test_the_situation_reaches_the_objective(context: Context, known: bool) -> None:
    at = replace(asked(4), objective=ByPrice("energy_j"))
    seen = replace(past(at, baseline(at)), context=context)
    assert (seen.limits is not None) is known


def test_a_past_has_no_clock_and_no_device() -> None:
    names = ["study", "trials", "context", "withdrawn"]
    assert [f.name for f in fields(Past)] == names
