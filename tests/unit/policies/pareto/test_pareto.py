"""The front of two objectives: refusals, trials, and the proposal at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.pareto.policy import Pareto
from tests.bench.declared.front import share_found
from tests.bench.made_up.kinds import made_up
from tests.builders import device, setting, study, trial, window
from tests.unit.tuner.cli import worlds
from tuner.core import Done, InvalidInput, Objective, Past, Phase, Study, Terms, Trial, Try
from tuner.wire import StudyDraft


def both(trials: int = 6) -> Study:
    return replace(
        study(),
        phase=Phase.TUNING,
        second_objective=Objective("latency_p99_ms"),
        constraints=(),
        terms=Terms(trials=trials),
    )


def shown(number: int, clock: int, energy_j: float, latency_ms: float) -> Trial:
    phase = Phase.BASELINE if number <= 2 else Phase.TUNING
    return trial(number, setting(clock), window(energy_j, latency_ms), phase=phase)


KNOWN = (shown(1, 1000, 10.0, 100.0), shown(2, 1000, 10.0, 100.0), shown(3, 600, 6.0, 130.0))


def test_a_study_of_one_objective_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="needs a second objective"):
        Pareto().refuse(study())


def test_another_policy_refuses_a_second_objective_by_name() -> None:
    verbs = worlds.operations(about=device())
    draft = StudyDraft(devices=("sim",), second_objective="latency_p99_ms", policy="scripted")
    with pytest.raises(InvalidInput, match="does not support the second objective latency_p99_ms"):
        verbs.create(draft)


def test_it_tries_settings_that_grow_the_front_and_repeats_for_the_same_past() -> None:
    past = Past(study=both(), trials=KNOWN)
    answer = Pareto().suggest(past)
    assert isinstance(answer, Try)
    assert "grow the front of energy_j and latency_p99_ms" in answer.why
    assert answer.setting not in [t.setting for t in KNOWN]
    assert Pareto().suggest(past) == answer


def test_at_its_end_it_proposes_the_least_product() -> None:
    """6 J at 130 ms is 0.78 of the baseline's product, 5 J at 190 ms 0.95 of it."""
    trials = (*KNOWN, shown(4, 400, 5.0, 190.0))
    answer = Pareto().suggest(Past(study=both(trials=2), trials=trials))
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == setting(600)
    assert "least product of energy_j and latency_p99_ms" in answer.why


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 21])
def test_it_knows_most_of_a_made_up_front(seed: int) -> None:
    """With seed 21 the first trial beats all measured settings: the front continues beyond its corner."""
    problem = next(p for p in made_up(seed, 5) if p.source == "queue")
    assert share_found(problem, seed) > 0.8
