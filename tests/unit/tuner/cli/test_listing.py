"""Lists: one line a thing at any width, and no value is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tuner.cli.listing import lines, shortened

NAMES = ("device", ">n", "~setting", "+reason")
ROWS = [("gpu0@a", "3", "gpu.clock_mhz=624 batch_size=8", "it is hot"), ("b", "12", "a=1", "–")]


def test_without_a_width_every_value_is_there_in_full() -> None:
    assert lines(NAMES, ROWS) == [
        "device   n  setting                         reason",
        "gpu0@a   3  gpu.clock_mhz=624 batch_size=8  it is hot",
        "b       12  a=1                             –",
    ]


def test_an_optional_column_is_left_out_where_it_does_not_fit() -> None:
    assert lines(NAMES, ROWS, 53) == lines(NAMES, ROWS)
    assert lines(NAMES, ROWS, 52) == lines(NAMES[:3], [row[:3] for row in ROWS])


def test_a_marked_column_is_cut_at_the_end_of_a_word() -> None:
    assert lines(NAMES, ROWS, 35) == [
        "device   n  setting",
        "gpu0@a   3  gpu.clock_mhz=624 …",
        "b       12  a=1",
    ]


def test_a_value_that_is_wider_than_the_terminal_stays_whole() -> None:
    assert lines(("device", "~setting"), [("d" * 90, "a=1 b=2")], 80)[1].startswith("d" * 90)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred"])
def test_a_value_cannot_make_a_second_line_or_a_colour(text: str) -> None:
    _, *rest = lines(("x",), [(text,)])
    assert len(rest) == 1 and "\n" not in rest[0] and "\x1b" not in rest[0]


words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@given(st.lists(words, min_size=1, max_size=8).map(" ".join), st.integers(10, 80))
def test_a_shortened_text_begins_as_the_text_and_fits_or_is_one_word(text: str, width: int) -> None:
    cut = shortened(text, width)
    assert text.startswith(cut.removesuffix(" …"))
    assert cell_len(cut) <= width or " " not in cut.removesuffix(" …")
