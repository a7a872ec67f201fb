"""A sweep of caps: each cap once, disturbed windows again, at most eight windows, and no proposal."""

from __future__ import annotations

from dataclasses import replace

from policies.budget.sweep import PowerSweep
from tests.builders import past, study, trial, window
from tuner.core import Done, Knob, Phase, Setting, Space, Study, Terms, TrialState, Try, Wait

LIMIT = "gpu.power_limit_w"
CAPS = (150, 200, 250, 300, 350, 400)


def sweep(trials: int = 6) -> Study:
    at = study(constraints=(), space=Space((Knob(LIMIT, CAPS, 400),)))
    return replace(at, policy="power-sweep", terms=Terms(trials=trials))


def played(at: Study, disturbed: frozenset[int] = frozenset()) -> tuple[list[Setting], Done]:
    """Play a sweep whose windows with these numbers are disturbed. Return its trials, and its end."""
    trials = [trial(n, at.baseline, window(), phase=Phase.BASELINE) for n in (1, 2)]
    tried: list[Setting] = []
    while isinstance(step := PowerSweep().suggest(past(at, trials)), Try):
        number = len(trials) + 1
        state = TrialState.CONTAMINATED if number in disturbed else TrialState.COMPLETED
        trials.append(trial(number, step.setting, state=state))
        tried.append(step.setting)
    assert isinstance(step, Done)
    return tried, step


def test_each_cap_is_tried_once_from_the_lowest_and_the_baseline_stays() -> None:
    tried, end = played(sweep())
    assert [one[LIMIT] for one in tried] == [150, 200, 250, 300, 350]
    assert [row.setting for row in end.plan.rows] == [sweep().baseline]


def test_a_disturbed_cap_is_repeated_at_the_end_within_eight_windows() -> None:
    tried, _ = played(sweep(), frozenset({3, 4}))
    assert [one[LIMIT] for one in tried] == [150, 200, 250, 300, 350, 150]
    tried, _ = played(sweep(), frozenset(range(3, 30)))
    assert len(tried) == 6


def test_several_caps_of_a_device_rise_together() -> None:
    knobs = (Knob(LIMIT, CAPS, 400), Knob("cpu.package_power_limit_w", (50, 75, 100), 100))
    tried, _ = played(replace(sweep(), space=Space(knobs)))
    pairs = [(one[LIMIT], one["cpu.package_power_limit_w"]) for one in tried]
    assert pairs == [(150, 50), (200, 50), (250, 75), (300, 75), (350, 100)]


def test_it_waits_for_the_baseline_and_for_a_running_trial() -> None:
    at = sweep()
    assert isinstance(PowerSweep().suggest(past(at, [])), Wait)
    trials = [trial(n, at.baseline, window(), phase=Phase.BASELINE) for n in (1, 2)]
    for number, cap in enumerate((150, 200, 250, 300, 350), start=3):
        state = TrialState.RUNNING if cap == 350 else TrialState.COMPLETED
        trials.append(trial(number, {LIMIT: cap}, state=state))
    assert isinstance(PowerSweep().suggest(past(at, trials)), Wait)
