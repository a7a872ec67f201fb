"""Cells of a table: each is confirmed by windows at its own value of the second signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tests.builders import trial
from tests.unit.tuner.bo.test_load import BY, asked, shown
from tests.unit.tuner.study.test_reach import FAST, HOME, PLAN, SLOW
from tuner.core import LOAD_REACH, Past, Phase, Plan, Row, Setting, Signal, Terms, Trial
from tuner.study.follow import confirming_rows, row_duel, why_grow
from tuner.study.moves import Assign, Move

SIZE = "prompt_tokens"
REST = Plan((Row(math.inf, HOME),), BY, eager=True)
TABLE = Plan.table(SIZE, [(106.0, 100.0, PLAN), (212.0, 200.0, PLAN), (math.inf, None, REST)])


def windows(
    *seen: tuple[Setting, float, float], phase: Phase = Phase.CONFIRMING, first: int = 1
) -> list[Trial]:
    made = []
    for number, (at, load, size) in enumerate(seen, first):
        window = shown(at, load)
        window = replace(window, context={**window.context, SIZE: size})
        made.append(trial(number, at, window, phase=phase))
    return made


def baselines(*places: tuple[float, float]) -> list[Trial]:
    return windows(*((HOME, *place) for place in places), phase=Phase.BASELINE, first=900)


def confirming(trials: Sequence[Trial], load: float, size: float) -> Past:
    at = replace(asked(), terms=Terms(trials=40, plan_by=f"{BY},{SIZE}"), plan=TABLE)
    at = replace(at, signals=(*at.signals, Signal(SIZE)), phase=Phase.CONFIRMING)
    return Past(study=at, trials=tuple(trials), context={BY: load, SIZE: size})


def kept(seen: Sequence[Trial]) -> Plan:
    step = confirming_rows(confirming(seen, 500.0, 100.0), seen)
    assert isinstance(step, Move) and step.plan is not None, step
    return step.plan


def held(plan: Plan, load: float, size: float) -> Setting:
    return plan.rows[plan.row({BY: load, SIZE: size})].setting


BASE = baselines(
    (30.0, 100.0), (28.0, 104.0), (47.0, 200.0), (49.0, 205.0), (29.0, 200.0), (31.0, 201.0)
)


def test_a_cell_is_held_up_to_the_place_that_two_windows_confirm_by_both_signals() -> None:
    seen = [*windows((SLOW, 30.0, 102.0), (SLOW, 29.0, 98.0)), *BASE]
    plan = kept(seen)
    # The window at 102 alone shows nothing; that at 98 is near enough to it.
    assert plan.columns_by == SIZE and plan.rows[0].column_at == 102.0
    assert held(plan, 29.0, 102.0) == SLOW
    assert held(plan, 29.0 * LOAD_REACH * LOAD_REACH, 102.0) == HOME
    assert held(plan, 29.0, 102.0 * LOAD_REACH * 1.001) == HOME


def test_windows_at_a_lower_value_of_the_second_signal_confirm_nothing_above_it() -> None:
    seen = [*windows((SLOW, 30.0, 100.0), (SLOW, 29.0, 85.0)), *BASE]
    plan = kept(seen)
    assert [c.rows[0].below < math.inf for c in plan.columns][:1] == [True]
    assert max(row.column_at or 0.0 for row in plan.rows) == 85.0
    assert held(plan, 29.0, 95.0) == HOME


def test_at_a_lower_value_the_next_higher_column_holds_beyond_a_column_of_its_own() -> None:
    own = windows((SLOW, 29.0, 100.0), (SLOW, 28.0, 101.0))
    above = windows((FAST, 50.0, 200.0), (FAST, 49.0, 204.0), first=9)
    plan = kept([*own, *above, *BASE])
    assert held(plan, 29.0, 100.0) == SLOW
    assert held(plan, 50.0, 200.0) == FAST
    assert held(plan, 50.0, 100.0) == FAST, "confirmed at twice the size"
    assert held(plan, 10.0, 150.0) == FAST
    assert held(plan, 10.0, 300.0) == held(plan, 90.0, 100.0) == HOME


def test_the_present_column_is_measured_and_its_own_baseline_first() -> None:
    step = confirming_rows(confirming(BASE, 26.0, 100.0), BASE)
    assert isinstance(step, Assign) and step.setting == SLOW and SIZE in step.why
    some = baselines((30.0, 100.0), (28.0, 104.0))
    step = confirming_rows(confirming(some, 26.0, 200.0), some)
    assert isinstance(step, Assign) and step.setting == HOME, "no baseline at that size yet"


def test_a_cell_rests_on_its_own_windows() -> None:
    seen = [*windows((SLOW, 30.0, 102.0), (SLOW, 29.0, 98.0)), *BASE]
    past, row = confirming(seen, 29.0, 100.0), kept(seen).rows[0]
    assert row_duel(past, row) is not None
    assert row_duel(past, replace(row, column_at=400.0, column_below=500.0)) is None


def test_a_table_does_not_grow_where_its_cell_is_confirmed_at_the_present_place() -> None:
    class Asked:
        """A policy that must not be asked."""

        def suggest(self, past: Past) -> object:
            raise AssertionError("asked")

    seen = [*windows((SLOW, 30.0, 102.0), (SLOW, 29.0, 98.0)), *BASE]
    past = confirming(seen, 29.0, 100.0)
    holding = replace(past, study=replace(past.study, phase=Phase.HOLDING, plan=kept(seen)))
    assert why_grow(holding, Asked()) == ""  # type: ignore[arg-type]
