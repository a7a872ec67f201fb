"""The explanation of a search: slices through the best setting, and refused settings with reasons."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace

import pytest

from policies.polythrottle.policy import Polythrottle, TwoPhase
from tests.builders import baseline, past, setting, surface, trial
from tests.unit.tuner.bo.test_suggest import fine, go_on
from tuner import guard
from tuner.bo.explain import MOST_REFUSED, explain
from tuner.bo.suggest import suggest
from tuner.core import Explains, Phase, Plan, TrialState, Try, incumbent, setting_key

LIMIT = ("latency_p99_ms <= 1.2x baseline",)


def test_before_the_baseline_nothing_is_believed() -> None:
    explanation = explain(past(fine(), []))
    assert (explanation.slices, explanation.refused) == ((), ())
    assert "baseline" in explanation.text


def test_both_ways_to_search_explain_themselves() -> None:
    assert isinstance(Polythrottle(), Explains) and isinstance(TwoPhase(), Explains)


def test_it_is_pure_and_gives_the_policys_next_step() -> None:
    study = fine(constraints=LIMIT)
    seen = past(study, go_on(study, baseline(study), 5))
    before = deepcopy(seen.trials)
    explanation = explain(seen)
    assert explanation == explain(past(study, list(before)))
    answer = suggest(seen)
    assert isinstance(answer, Try)
    assert all(f"{knob}={value}" in explanation.text for knob, value in answer.setting.items())
    assert answer.why in explanation.text


def test_it_gives_the_probability_of_each_hypothesis() -> None:
    study = fine(constraints=LIMIT)
    text = explain(past(study, go_on(study, baseline(study), 3))).text
    shares = [int(share) for share in re.findall(r"(\d+) %", text.split("each hypothesis")[1])]
    assert len(shares) >= 2 and 97 <= sum(shares) <= 103
    assert shares == sorted(shares, reverse=True)


def test_after_the_search_it_names_no_next_trial() -> None:
    study = fine(constraints=LIMIT)
    trials = go_on(study, baseline(study), 5)
    holding = replace(study, phase=Phase.HOLDING, plan=Plan.single(trials[-1].setting))
    asked = study.space.default
    explanation = explain(past(holding, trials), asked)
    assert "next" not in explanation.text and explanation.text.startswith("Probability")
    assert explanation.query is not None and explanation.query.setting == asked


def test_each_knob_is_followed_through_the_best_setting() -> None:
    study = fine(constraints=LIMIT)
    seen = past(study, go_on(study, baseline(study), 6))
    explanation = explain(seen)
    best = incumbent(study, seen.evidence)
    assert best is not None and explanation.through == best.setting
    assert [s.knob for s in explanation.slices] == ["gpu.clock_mhz", "batch_size"]
    for along in explanation.slices:
        assert along.values == study.space.knob(along.knob).values
        for value, point in zip(along.values, along.points, strict=True):
            assert point.setting == {**explanation.through, along.knob: value}
            assert set(point.predicted) == {"energy_j", "latency_p99_ms"}
            assert 0.0 <= point.chance <= 1.0
        assert [p.setting for p in along.points if p.measured].count(explanation.through) == 1


def test_the_best_setting_is_not_shown_as_refused_however_often_it_was_measured() -> None:
    study = fine(constraints=LIMIT)
    trials = go_on(study, baseline(study), 5)
    best = incumbent(study, past(study, trials).evidence)
    assert best is not None
    again = [trial(len(trials) + n, best.setting, surface(best.setting)) for n in range(1, 5)]
    explanation = explain(past(study, [*trials, *again]))
    shown = [p for s in explanation.slices for p in s.points if p.setting == explanation.through]
    assert explanation.through == best.setting
    assert shown and not any(point.refused for point in shown)


def test_the_held_setting_is_in_no_list_of_refused_settings() -> None:
    """This holds even if its own windows broke the limit, so that it is no longer tried."""
    study = fine(constraints=LIMIT)
    trials = go_on(study, baseline(study), 5)
    held = trials[-1].setting
    late = [trial(len(trials) + n, held, surface(setting(400, 4))) for n in range(1, 5)]
    holding = replace(study, phase=Phase.HOLDING, plan=Plan.single(held))
    explanation = explain(past(holding, [*trials, *late]))
    assert explanation.through == held
    assert not any(p.refused for s in explanation.slices for p in s.points if p.setting == held)
    assert held not in [p.setting for p in explanation.refused]


def test_the_truth_lies_within_most_bands() -> None:
    """After six trials on a smooth surface 90 % of all values lie within two standard deviations."""
    study = fine(constraints=LIMIT)
    explanation = explain(past(study, go_on(study, baseline(study), 6)))
    inside = []
    for along in explanation.slices:
        for point in along.points:
            truth = surface(point.setting).estimates
            for metric, predicted in point.predicted.items():
                inside.append(abs(truth[metric].mean - predicted.mean) <= 2.0 * predicted.sd)
    assert len(inside) > 50
    assert sum(inside) >= 0.9 * len(inside)


def test_refused_settings_are_better_likely_infeasible_and_not_tried() -> None:
    study = fine(constraints=("latency_p99_ms <= 1.05x baseline",))
    seen = past(study, go_on(study, baseline(study), 5))
    explanation = explain(seen)
    assert 0 < len(explanation.refused) <= MOST_REFUSED
    measured = {setting_key(c.setting) for c in seen.evidence.candidates}
    for one in explanation.refused:
        assert one.refused
        risky = guard.risk(study, seen.evidence, one.predicted)
        assert (
            risky == one.refused or setting_key(one.setting) in measured or "slower" in one.refused
        )


def test_a_setting_that_failed_twice_is_reported() -> None:
    study = fine(constraints=LIMIT)
    lost = setting(975)
    failed = [trial(n, lost, state=TrialState.FAILED, reason="no") for n in (3, 4)]
    explanation = explain(past(study, [*baseline(study), *failed]))
    (along,) = [s for s in explanation.slices if s.knob == "gpu.clock_mhz"]
    (point,) = [p for p in along.points if p.setting == lost]
    assert point.refused == "it failed 2 times; last reason: no"


@pytest.mark.parametrize("spent", [0, 4])
def test_a_study_whose_trials_are_used_would_try_nothing_more(spent: int) -> None:
    study = fine(4, constraints=LIMIT)
    explanation = explain(past(study, go_on(study, baseline(study), spent)))
    assert ("no further trial" in explanation.text) == (spent == 4)
