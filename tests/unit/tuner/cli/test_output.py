"""JSON on stdout is strict JSON for every input."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.builders import START
from tuner.cli.output import CUT, echo_json, lines, listing, middle, plain, shortened, write_text
from tuner.core import Estimate, Phase
from tuner.wire import Problem


def test_bounds_that_are_infinite_become_null() -> None:
    shown = plain(Estimate(2.0, 0.1, high=math.inf))
    assert isinstance(shown, dict)
    assert shown["mean"] == 2.0
    assert shown["high"] is None
    assert shown["origin"] == "measured"


def test_messages_times_and_enums_become_plain_json() -> None:
    message = Problem(code="x", message="y")
    assert plain(message) == {"code": "x", "message": "y", "hint": ""}
    assert plain({"at": START, "phase": Phase.TUNING, "all": (1, True)}) == {
        "at": "2026-01-01T12:00:00+00:00",
        "phase": "tuning",
        "all": [1, True],
    }


@given(st.recursive(st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_anything_plain_is_strict_json(value: object) -> None:
    converted = plain(value)
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted


def test_an_empty_list_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json([])
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(("mode", "new"), [(0o600, 0o600), (0o666, 0o640)])
def test_an_outputs_mode_heeds_the_umask_and_a_rewritten_one_keeps_it(
    tmp_path: Path, mode: int, new: int
) -> None:
    file, link = tmp_path / "table.csv", tmp_path / "link"
    link.symlink_to(file)
    before = os.umask(0o027)
    try:
        write_text(file, "a\n", mode=mode)
        assert stat.S_IMODE(file.stat().st_mode) == new
        file.chmod(0o604)
        owner = (12345, 12345) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        os.chown(file, *owner)
        write_text(link, "b\n", mode=mode)
    finally:
        os.umask(before)
    kept = file.stat()
    assert (stat.S_IMODE(kept.st_mode), (kept.st_uid, kept.st_gid)) == (0o604, owner)
    assert file.read_text() == "b\n" and link.is_symlink()


def test_an_output_that_is_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "a\n")
        assert os.read(reader, 10) == b"a\n" and pipe.is_fifo()
    finally:
        os.close(reader)


NAMES = ("device", ">n", "~setting", "+reason")
ROWS = [("gpu0@a", "3", "gpu.clock_mhz=624 batch_size=8", "it is hot"), ("b", "12", "a=1", "–")]


def test_without_a_width_every_value_is_there_in_full() -> None:
    assert lines(NAMES, ROWS) == [
        "device   n  setting                         reason",
        "gpu0@a   3  gpu.clock_mhz=624 batch_size=8  it is hot",
        "b       12  a=1                             –",
    ]


def test_an_optional_column_that_does_not_fit_is_left_out() -> None:
    assert lines(NAMES, ROWS, 53) == lines(NAMES, ROWS)
    assert lines(NAMES, ROWS, 52) == lines(NAMES[:3], [row[:3] for row in ROWS])


def test_a_marked_column_is_cut_at_the_end_of_a_word() -> None:
    assert lines(NAMES, ROWS, 35) == [
        "device   n  setting",
        "gpu0@a   3  gpu.clock_mhz=624 …",
        "b       12  a=1",
    ]


def test_columns_that_are_not_shown_are_counted_and_empty_ones_are_not() -> None:
    assert listing(NAMES, ROWS, 35).hidden == 1
    assert listing(NAMES, [(*row[:3], "–") for row in ROWS], 35).hidden == 0
    assert listing(NAMES, ROWS).hidden == 0


def test_an_id_keeps_both_ends_and_a_command_is_whole_below_its_row() -> None:
    host = f"ip-10-0-{'1' * 40}.example.internal"
    made = listing(("=device", "~reason", "!next step"), [(host, "it is hot", f"show {host}")], 60)
    (entry,) = made.body
    row, below = entry.splitlines()
    assert row.startswith("ip-10-0-1") and CUT in row and "internal" in row and "it is hot" in row
    assert below == f"    next step: show {host}"
    assert made.hidden == 0


@given(st.text(min_size=1, max_size=120), st.integers(3, 80))
def test_a_name_cut_in_the_middle_keeps_its_ends_and_its_mark(text: str, width: int) -> None:
    cut = middle(text, width)
    assert cut == text or (CUT in cut and (cut[0], cut[-1]) == (text[0], text[-1]))


def test_compared_values_are_all_beside_each_other_or_all_below() -> None:
    row = ("name", "a" * 30, "b" * 30, "c" * 30)
    head, entry = lines(("fact", "!s1", "!s2", "!s3"), [row], 80)
    assert head == "fact" and entry.splitlines()[1:] == [
        f"    {name}: {value}" for name, value in zip(("s1", "s2", "s3"), row[1:], strict=True)
    ]
    assert len(lines(("fact", "!s1", "!s2", "!s3"), [row], 102)[1].splitlines()) == 1


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
