"""The paper's order: first the CPU clock alone, then all other knobs at the best clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.polythrottle.policy import CPU_TRIALS, TwoPhase
from tests.builders import SPACE, asked, baseline, past, trial, window
from tuner.core import (
    Done,
    Knob,
    Measurement,
    Role,
    Setting,
    Space,
    Study,
    Trial,
    TrialState,
    Try,
    Wait,
)

CPU_CLOCK = "x7"
"""The knob's name does not matter; its role does."""
CPU_CLOCKS = (500, 1000, 1500, 2000)
WITH_CPU = Space((*SPACE.knobs, Knob(CPU_CLOCK, CPU_CLOCKS, 2000, role=Role.HOST_CLOCK)))


def shown(at: Setting) -> Measurement:
    """Return a window of a device with its best CPU clock at 1000 MHz."""
    gpu, batch = float(at["gpu.clock_mhz"]) / 1000.0, float(at["batch_size"])
    cpu = float(at[CPU_CLOCK]) / 1000.0
    energy_j = (2.0 + 2.0 / gpu + 6.0 * gpu**2) / batch**0.3 + 1.0 / cpu + cpu
    return window(energy_j, 90.0 * batch**0.2 / gpu**0.4 + 10.0 / cpu)


def with_cpu(trials: int = 12, **changes: object) -> Study:
    return replace(asked(trials, **changes), space=WITH_CPU)


def start(at: Study) -> list[Trial]:
    return baseline(at, shown(at.baseline))


def play(at: Study) -> tuple[list[Setting], Done]:
    """Return the trials until the policy is done, and its last answer."""
    trials = start(at)
    while isinstance(answer := TwoPhase().suggest(past(at, trials)), Try):
        trials.append(trial(len(trials) + 1, answer.setting, shown(answer.setting)))
    assert isinstance(answer, Done)
    return [t.setting for t in trials[2:]], answer


def turned(setting: Setting) -> set[str]:
    return {name for name, value in setting.items() if value != WITH_CPU.default[name]}


def test_the_cpu_clock_comes_first_and_by_itself_then_stays() -> None:
    tried, done = play(with_cpu())
    first, second = tried[:CPU_TRIALS], tried[CPU_TRIALS:]
    assert all(turned(setting) == {CPU_CLOCK} for setting in first)
    best = min(
        [*first, WITH_CPU.default], key=lambda setting: shown(setting).estimates["energy_j"].mean
    )
    assert second
    assert {setting[CPU_CLOCK] for setting in second} == {best[CPU_CLOCK]}
    assert any("batch_size" in turned(setting) for setting in second)
    assert done.plan.rows[0].setting[CPU_CLOCK] == best[CPU_CLOCK]


def test_a_clock_over_the_limit_is_not_kept() -> None:
    at = with_cpu()
    trials = start(at)
    for clock, energy_j, latency_p99_ms in (
        (1500, 9.8, 100.0),
        (1000, 8.0, 130.0),
        (500, 9.9, 90.0),
    ):
        seen = window(energy_j, latency_p99_ms)
        trials.append(trial(len(trials) + 1, {**at.baseline, CPU_CLOCK: clock}, seen))
    answer = TwoPhase().suggest(past(at, trials))
    assert isinstance(answer, Try)
    assert answer.setting[CPU_CLOCK] == 1500


def test_if_no_clock_keeps_the_limit_the_default_stays() -> None:
    at = with_cpu(constraints=("latency_p99_ms <= 80",))
    tried, _ = play(at)
    assert {setting[CPU_CLOCK] for setting in tried[CPU_TRIALS:]} == {2000}


def test_results_of_the_second_phase_do_not_move_the_clock() -> None:
    at = with_cpu(20)
    trials = start(at)
    for clock in (1500, 1000, 500):
        tried = {**at.baseline, CPU_CLOCK: clock}
        trials.append(trial(len(trials) + 1, tried, shown(tried)))
    away = {**at.baseline, "batch_size": 2, CPU_CLOCK: 1000}
    trials.append(trial(6, away, shown(away)))
    worse = {**at.baseline, CPU_CLOCK: 1000}
    trials.append(trial(7, worse, window(30.0, 110.0)))
    answer = TwoPhase().suggest(past(at, trials))
    assert isinstance(answer, Try)
    assert answer.setting[CPU_CLOCK] == 1000


def test_the_second_phase_waits_for_the_last_trial_of_the_first() -> None:
    at = with_cpu()
    trials = start(at)
    for number, clock in ((3, 1500), (4, 1000)):
        tried = {**at.baseline, CPU_CLOCK: clock}
        trials.append(trial(number, tried, shown(tried)))
    trials.append(trial(5, {**at.baseline, CPU_CLOCK: 500}, state=TrialState.RUNNING))
    answer = TwoPhase().suggest(past(at, trials))
    assert isinstance(answer, Wait)
    assert "CPU" in answer.why


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.CONTAMINATED])
def test_trials_that_went_wrong_use_up_the_first_phase(state: TrialState) -> None:
    at = with_cpu()
    lost = [
        trial(3 + i, {**at.baseline, CPU_CLOCK: clock}, state=state)
        for i, clock in enumerate((1500, 1000, 500))
    ]
    answer = TwoPhase().suggest(past(at, [*start(at), *lost]))
    assert isinstance(answer, Try)
    assert answer.setting[CPU_CLOCK] == 2000
    assert turned(answer.setting)
