"""Plans by the hour, from the first trial to the hold, on a made-up server with a busy day."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policies.polythrottle.policy import Polythrottle
from tests.builders import START, knob, study, trial, window
from tuner.core import (
    DAY_PARTS,
    HOUR,
    Done,
    Past,
    Phase,
    Plan,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    Wait,
    hour_context,
)
from tuner.study.follow import why_grow
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move, Rest

BY = HOUR
CLOCKS = tuple(range(600, 1501, 100))
STEP = timedelta(minutes=6)


def needed(hour: float) -> int:
    """Return the lowest clock that keeps the limit of 100 ms: high by day, low at night."""
    return 1200 if 8.0 <= hour < 20.0 else 700


def seen(number: int, at: Setting, hour: float, phase: Phase = Phase.TUNING) -> Trial:
    clock = float(at["gpu.clock_mhz"])
    rate = 20.0 + 5.0 * (hour % 4.0)
    shown = window(
        2.0 + (clock / 500.0) ** 2,
        90.0 * needed(hour) / clock,
        context={BY: hour, "arrival_rate_per_s": rate},
    )
    return trial(number, at, shown, phase=phase)


class Day:
    """A study on a server; its time advances by six minutes with every window and read."""

    def __init__(self, trials: int = 90) -> None:
        self.study: Study = study(
            Phase.BASELINE,
            constraints=("latency_p99_ms <= 100",),
            space=Space((knob("gpu.clock_mhz", CLOCKS, 1500),)),
            terms=Terms(trials=trials, plan_by=BY),
            policy="polythrottle",
        )
        self.now = START
        self.trials: list[Trial] = []
        self.holds: list[Plan] = []
        self.policy = Polythrottle()

    @property
    def past(self) -> Past:
        return Past(study=self.study, trials=tuple(self.trials), context=hour_context(BY, self.now))

    def move(self, phase: Phase, plan: Plan | None = None) -> None:
        moved = self.study.moved(phase, plan)
        self.study = replace(moved, phase_since=len(self.trials) + 1)

    def step(self) -> None:
        step = next_step(self.past, self.policy)
        if isinstance(step, Move):
            self.move(step.phase, step.plan)
            if step.phase is Phase.HOLDING and self.study.plan is not None:
                self.holds.append(self.study.plan)
        elif isinstance(step, Assign):
            hour = self.past.context[BY]
            number = len(self.trials) + 1
            self.trials.append(seen(number, step.setting, hour, self.study.phase))
            self.now += STEP
        else:
            assert isinstance(step, Rest)
            if self.study.phase is Phase.HOLDING and why_grow(self.past, self.policy):
                self.move(Phase.TUNING)
            self.now += STEP


def test_each_part_of_the_day_comes_to_its_own_setting_and_no_unconfirmed_row_is_held() -> None:
    day = Day()
    while day.now < START + timedelta(hours=48):
        before = len(day.holds)
        day.step()
        if len(day.holds) > before:
            for row in day.holds[-1].rows:
                mine = [t for t in day.trials if t.phase is Phase.CONFIRMING]
                own = [t for t in mine if t.tries(row.setting)]
                assert day.study.rests(row.setting) or len(own) >= 2
    assert day.study.phase is Phase.HOLDING and day.study.plan is not None
    plan = day.study.plan
    clocks = [int(row.setting["gpu.clock_mhz"]) for row in plan.rows]
    assert len(clocks) == DAY_PARTS and plan.by == BY
    assert all(700 <= clock <= 800 for clock in (*clocks[:2], clocks[5])), clocks
    assert all(1200 <= clock <= 1300 for clock in clocks[2:5]), clocks
    assert plan.row({BY: 7.99}, current=2) == 1, "an hour has no hysteresis"
    assert plan.row({BY: 0.0}, current=5) == 0


def test_with_too_few_trials_the_other_hours_keep_the_baseline() -> None:
    day = Day(trials=8)
    while day.now < START + timedelta(hours=30):
        day.step()
    assert day.study.plan is not None
    others = [row for row in day.study.plan.rows if not day.study.rests(row.setting)]
    assert 1 <= len(others) < DAY_PARTS


def test_without_the_time_of_day_it_waits() -> None:
    day = Day()
    waits = Polythrottle().suggest(replace(day.past, context={}))
    assert isinstance(waits, Wait) and BY in waits.why


def test_a_part_whose_baseline_cannot_be_measured_keeps_it() -> None:
    day = Day()
    day.move(Phase.TUNING)
    hour = day.past.context[BY]
    at = day.study.baseline
    few = [replace(seen(n, at, hour), state=TrialState.INCONCLUSIVE) for n in (1, 2)]
    few = [replace(t, measurement=window(extra={}, context={BY: hour})) for t in few]
    day.trials = [replace(t, state=TrialState.FAILED) for t in few]
    answer = Polythrottle().suggest(day.past)
    assert isinstance(answer, Done) and day.study.rests(answer.plan.rows[0].setting)


@pytest.mark.parametrize("hours", [1.0, 5.0])
def test_a_window_of_another_part_is_no_evidence(hours: float) -> None:
    day = Day()
    day.move(Phase.TUNING)
    day.trials = [seen(n, day.study.baseline, hours) for n in (1, 2)]
    answer = Polythrottle().suggest(replace(day.past, context={BY: 9.0}))
    assert "the baseline is measured first" in getattr(answer, "why", "")
