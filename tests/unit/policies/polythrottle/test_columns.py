"""Tables: which column is searched, and what is held where nothing was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.polythrottle.columns import BASELINE_TRIES, suggest_by_column
from tests.builders import setting, study, trial, window
from tuner.core import (
    LOAD_REACH,
    Context,
    Done,
    Past,
    Phase,
    Plan,
    Prediction,
    Row,
    Signal,
    Study,
    Suggestion,
    Terms,
    Trial,
    Try,
    Wait,
)

RATE, SIZE = "arrival_rate_per_s", "prompt_tokens"
TABLES: Study = study(
    Phase.TUNING,
    constraints=("latency_p99_ms <= 150",),
    terms=Terms(trials=8, plan_by=f"{RATE},{SIZE}"),
    signals=(Signal(RATE, "1/s"), Signal(SIZE)),
)


class Searched:
    """A search of one column that answers as told, and keeps what it was asked about."""

    def __init__(self, answer: Suggestion) -> None:
        self.answer = answer
        self.pasts: list[Past] = []

    def __call__(self, past: Past) -> Suggestion:
        self.pasts.append(past)
        return self.answer


def measured(number: int, size: float, at: dict[str, object] | None = None) -> Trial:
    seen = window(context={RATE: 10.0, SIZE: size})
    return trial(number, at or setting(), seen, phase=Phase.TUNING)  # type: ignore[arg-type]


def past(*trials: Trial, now: Context) -> Past:
    return Past(study=TABLES, trials=trials, context=now)


def at(size: float) -> Context:
    return {RATE: 10.0, SIZE: size}


def test_without_the_second_signal_it_waits() -> None:
    answer = suggest_by_column(past(now={RATE: 10.0}), Searched(Wait("not asked")))
    assert isinstance(answer, Wait) and SIZE in answer.why


def test_a_new_column_begins_with_its_own_baseline() -> None:
    trials = [measured(n, 100.0) for n in (1, 2)]
    answer = suggest_by_column(past(*trials, now=at(300.0)), Searched(Wait("not asked")))
    assert isinstance(answer, Try) and answer.setting == TABLES.baseline and "300" in answer.why


def test_a_column_is_searched_with_its_own_windows_and_what_is_left_of_all() -> None:
    trials = [*(measured(n, 100.0) for n in (1, 2, 3)), measured(4, 300.0)]
    search = Searched(Try(setting(600), "it gains"))
    answer = suggest_by_column(past(*trials, now=at(110.0)), search)
    assert isinstance(answer, Try) and answer.why == f"at {SIZE} = 110, it gains"
    assert [t.number for t in search.pasts[0].trials] == [1, 2, 3]
    assert search.pasts[0].left == TABLES.terms.trials - 4


def test_what_the_guard_would_refuse_ends_the_search_of_its_column_alone() -> None:
    trials = [measured(n, 100.0) for n in (1, 2)]
    risky = Try(setting(600), "it gains", {"latency_p99_ms": Prediction(900.0, 1.0)})
    answer = suggest_by_column(past(*trials, now=at(100.0)), Searched(risky))
    assert isinstance(answer, Done) and "expected to break" in answer.why


@pytest.mark.parametrize("tries", range(BASELINE_TRIES + 1))
def test_a_column_whose_baseline_shows_nothing_is_given_up(tries: int) -> None:
    empty = [
        replace(measured(n, 300.0), measurement=replace(window(), estimates={}, context=at(300.0)))
        for n in range(1, tries + 1)
    ]
    answer = suggest_by_column(past(*empty, now=at(300.0)), Searched(Wait("not asked")))
    assert isinstance(answer, Done) is (tries == BASELINE_TRIES)


def test_the_table_has_a_column_for_each_distinct_value_and_the_baseline_above() -> None:
    plan = Plan((Row(12.0, setting(600), at=11.0), Row(math.inf, setting())), RATE, eager=True)
    trials = [measured(n, size) for n, size in enumerate((100.0, 104.0, 300.0, 310.0), 1)]
    answer = suggest_by_column(past(*trials, now=at(300.0)), Searched(Done(plan, "enough")))
    assert isinstance(answer, Done)
    bounds = [row.below for row in answer.plan.across.rows]
    assert bounds == [104.0 * LOAD_REACH, 310.0 * LOAD_REACH, math.inf]
    assert [len(column.rows) for column in answer.plan.columns] == [2, 2, 1]
    assert answer.plan.signals == (RATE, SIZE)


def test_where_no_column_gains_the_baseline_is_the_plan() -> None:
    rest = Plan.single(setting())
    trials = [measured(n, 100.0) for n in (1, 2)]
    answer = suggest_by_column(past(*trials, now=at(100.0)), Searched(Done(rest, "flat")))
    assert answer == Done(rest, f"at {SIZE} = 100, flat")
