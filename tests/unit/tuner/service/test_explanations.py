"""Of a study with very many settings a model uses some: the fit takes the cube of their number."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import knob, study, trial, window
from tuner.core import Past, Phase, Plan, Space, setting_key
from tuner.service.explanations import bounded

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


def test_of_many_it_is_the_baseline_the_plans_the_best_and_the_latest() -> None:
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
