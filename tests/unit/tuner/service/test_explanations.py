"""A model uses a subset of very many settings: the time of a fit grows with the cube of their number."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import knob, study, trial, window
from tests.unit.tuner.cli.worlds import operations
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Past, Phase, Plan, Space, render_setting, setting_key
from tuner.service.explanations import LEAST_TRIALS, bounded, correlations, explained
from tuner.service.study_changes import halt
from tuner.wire import Change, StudyDraft

SPACE = Space((knob("gpu.clock_mhz", tuple(range(1, 101)), 100),))


def past_of(settings: int) -> Past:
    trials = [
        trial(
            n,
            {"gpu.clock_mhz": 101 - n},
            window(float(n), 100.0),
            phase=Phase.BASELINE if n == 1 else Phase.TUNING,
        )
        for n in range(1, settings + 1)
    ]
    held = Plan.single({"gpu.clock_mhz": 50})
    return Past(study=study(Phase.HOLDING, space=SPACE, plan=held), trials=tuple(trials))


def test_few_settings_are_all_used() -> None:
    past = past_of(20)
    assert bounded(past, 20) is past


def test_a_long_past_is_cut_to_the_baseline_the_plans_the_best_and_the_latest() -> None:
    past = past_of(80)
    part = bounded(past, 20)
    clocks = {int(t.setting["gpu.clock_mhz"]) for t in part.trials}
    assert len({setting_key(t.setting) for t in part.trials}) == 20
    assert {100, 50, 99, 98, 21, 22} <= clocks, "baseline, held, best and latest"
    assert (part.spent, part.left) == (past.spent, past.left)


def test_every_window_of_a_setting_that_is_used_counts() -> None:
    past = past_of(40)
    twice = replace(past.trials[3], number=41)
    part = bounded(replace(past, trials=(*past.trials, twice)), 10)
    assert sum(t.setting == twice.setting for t in part.trials) == 2


def test_a_metric_that_moves_with_the_objective_has_a_rank_correlation() -> None:
    trials = [trial(n, None, window(float(n), 100.0 / n)) for n in range(1, LEAST_TRIALS + 1)]
    found = correlations(study(), trials)
    assert found["latency_p99_ms"] == -1.0
    assert "energy_j" not in found, "the objective itself"
    assert correlations(study(), trials[1:]) == {}, "too few trials"


def test_equal_values_share_a_rank_and_a_constant_metric_has_none() -> None:
    latencies = (50.0, 50.0, 60.0, 70.0, 70.0)
    trials = [trial(n, None, window(float(n), ms)) for n, ms in enumerate(latencies, 1)]
    assert 0.9 < correlations(study(), trials)["latency_p99_ms"] < 1.0
    same = [trial(n, None, window(float(n), 50.0)) for n in range(1, LEAST_TRIALS + 1)]
    assert "latency_p99_ms" not in correlations(study(), same)


def test_a_knob_without_effect_has_its_default_in_the_requested_setting() -> None:
    verbs = operations()
    conditions = {"batch_size": "gpu.clock_mhz > 600"}
    name = verbs.create(
        StudyDraft(devices=("sim",), constraints=(), policy="scripted", conditions=conditions)
    ).id
    query = verbs.explain(name, "gpu.clock_mhz=600 batch_size=4").query
    assert query is not None and query.setting == {"gpu.clock_mhz": 600, "batch_size": 1}


def test_an_explanation_is_of_the_present_search_and_of_what_was_measured() -> None:
    world = World()
    base = render_setting(world.start().baseline)
    assert explained(world.loop, "s1", base).why_not == "not tried yet"
    world.run(truth)
    ended = explained(world.loop, "s1", base)
    assert "the search has ended: that is low enough" in ended.explanation.text
    world.loop.changes.start_over(world.store.studies.get("s1"), "another driver")
    halt(world.loop, "s1", Change(who="ann", why="no time"))
    stopped = explained(world.loop, "s1", base)
    assert "the search has ended: no time" in stopped.explanation.text
    assert stopped.why_not == "not tried before the end"
