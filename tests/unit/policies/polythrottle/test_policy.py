"""The policy's own suggestions, apart from the optimiser's predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies import load_policy
from policies.polythrottle.policy import BREAKS, Polythrottle
from tests.builders import asked, baseline, past, trial
from tuner.core import Knob, Past, Signal, Space, Suggestion, TrialState, Try, Wait


def test_a_failed_setting_is_not_the_next_to_be_tried() -> None:
    at, policy = asked(8), load_policy("polythrottle")
    trials = baseline(at)
    first = policy.suggest(past(at, trials))
    assert isinstance(first, Try)
    trials.append(trial(3, first.setting, state=TrialState.FAILED, reason="the clock was refused"))
    second = policy.suggest(past(at, trials))
    assert isinstance(second, Try)
    assert second.setting != first.setting


@pytest.mark.parametrize("plan_by", ["", "rate"])
@pytest.mark.parametrize("without", [frozenset(), frozenset({BREAKS})])
def test_no_search_has_breaks_where_they_are_left_out(
    monkeypatch: pytest.MonkeyPatch, plan_by: str, without: frozenset[str]
) -> None:
    at = asked(8)
    broken = tuple(replace(knob, breaks=(2.0,)) for knob in at.space.knobs)
    terms = replace(at.terms, plan_by=plan_by)
    study = replace(at, space=Space(broken), terms=terms, signals=(Signal("rate", "1/s"),))
    seen: list[Knob] = []

    def suggest(given: Past, *_: object, **__: object) -> Suggestion:
        seen.extend(given.study.space.knobs)
        return Wait("nothing")

    monkeypatch.setattr("tuner.bo.suggest.suggest", suggest)
    Polythrottle(without).suggest(past(study, []))
    assert {knob.breaks for knob in seen} == {() if without else (2.0,)}
