"""Tables: plans by two signals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import rate_table, setting
from tuner.core import ANYWHERE, InvalidInput, Plan, Row

RATE, LENGTH = "arrival_rate_per_s", "prompt_tokens"
TABLE = rate_table(LENGTH)
HOME = TABLE.rows[-1].setting


def at(rate: float, length: float) -> dict[str, float]:
    return {RATE: rate, LENGTH: length}


def test_a_table_selects_the_column_then_the_row() -> None:
    held = [[TABLE.rows[TABLE.row(at(x, y))].setting for x in (5, 15, 30)] for y in (80, 150, 300)]
    assert held == [
        [setting(600), setting(800), HOME],
        [setting(800), HOME, HOME],
        [HOME, HOME, HOME],
    ]


def test_a_cell_has_a_place_by_both_signals() -> None:
    assert TABLE.context(TABLE.rows[1]) == at(20.0, 100.0)
    assert TABLE.context(TABLE.rows[2]) == ANYWHERE
    assert TABLE.signals == (RATE, LENGTH)
    assert TABLE.chief(HOME) == setting(800)


@given(row=st.integers(0, len(TABLE.rows) - 1))
def test_a_row_is_found_by_its_column_and_place(row: int) -> None:
    column, place = TABLE.cell(row)
    assert TABLE.index(column, place) == row
    own = TABLE.columns[column].rows[place]
    assert (own.below, own.setting, own.at) == (
        TABLE.rows[row].below,
        TABLE.rows[row].setting,
        TABLE.rows[row].at,
    )


@given(
    x=st.floats(0.0, 50.0),
    y=st.floats(0.0, 500.0),
    current=st.none() | st.integers(0, len(TABLE.rows) - 1),
)
def test_no_cell_is_held_above_its_own_place_by_either_signal(
    x: float, y: float, current: int | None
) -> None:
    row = TABLE.rows[TABLE.row(at(x, y), current)]
    assert x < row.below and y < (row.column_below or math.inf)


@given(x=st.floats(0.0, 50.0), y=st.floats(0.0, 500.0))
def test_a_row_is_kept_just_below_its_boundaries(x: float, y: float) -> None:
    row = TABLE.row(at(x, y))
    assert TABLE.row(at(x * 0.98, y), row) == TABLE.row(at(x, y * 0.98), row) == row


def test_an_unknown_signal_keeps_the_row_or_takes_that_of_the_highest_load() -> None:
    last = len(TABLE.rows) - 1
    assert TABLE.row({}) == last and TABLE.row({}, 1) == 1
    assert TABLE.row({RATE: 5.0}, 1) == 0, "in the column that is held"
    assert TABLE.rows[TABLE.row({LENGTH: 80.0}, last)].setting == HOME, "the highest rate"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"eager": False}, "eager"),
        ({"columns_by": RATE}, "two signals"),
        ({"by": ""}, "two signals"),
        ({"columns_by": ""}, "ascend"),
        ({"rows": TABLE.rows[:-1]}, "infinity"),
        ({"rows": TABLE.rows[1:2] + TABLE.rows[:1] + TABLE.rows[2:]}, "ascend"),
        ({"rows": (replace(TABLE.rows[0], column_at=500.0), *TABLE.rows[1:])}, "ascend"),
    ],
)
def test_what_is_no_table_is_refused(change: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        replace(TABLE, **change)  # type: ignore[arg-type]


def test_columns_need_a_second_signal() -> None:
    with pytest.raises(InvalidInput, match="column"):
        Plan((Row(math.inf, HOME, column_at=3.0),))
