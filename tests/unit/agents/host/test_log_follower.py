"""A log is followed from its current end: no line is lost in a rotation, and a truncation is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.host.log_follower import LONGEST, LogFollower
from tests.errors import raised
from tuner.core import MeasurementError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "access.log"
    path.write_text("before\n")
    return path


@pytest.fixture
def follower(log: Path) -> Iterator[LogFollower]:
    followed = LogFollower(log)
    yield followed
    followed.close()


def put(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_new_and_ended_trials_are_exported(follower: LogFollower, log: Path) -> None:
    assert follower.lines() == []
    put(log, "a\nb\nhal")
    assert follower.lines() == ["a", "b"]
    put(log, "f\n\n")
    assert follower.lines() == ["half", ""]


def test_a_line_that_was_begun_before_is_left_out(log: Path) -> None:
    put(log, "begun be")
    follower = LogFollower(log)
    put(log, "fore\nwhole\n")
    assert follower.lines() == ["whole"]
    follower.close()


@pytest.mark.promise(
    "a PID file is stale, a log is rotated or truncated, or a service restarts during a window"
)
def test_rotation_loses_nothing_on_either_side(follower: LogFollower, log: Path) -> None:
    put(log, "1\n")
    log.rename(log.with_suffix(".1"))
    put(log.with_suffix(".1"), "2\n")
    assert follower.lines() == ["1", "2"]
    log.write_text("3\n")
    put(log.with_suffix(".1"), "4\n")  # the writer has not reopened the log yet
    assert follower.lines() == ["4", "3"]
    put(log, "5\n")
    assert follower.lines() == ["5"]


def test_a_file_between_two_readings_is_missed_by_name(tmp_path: Path, log: Path) -> None:
    put(tmp_path / "access.log.errors", "of the same program\n")
    follower = LogFollower(log)
    log.rename(tmp_path / "access.log.1")
    for packed in ("gz", "lz4", "zip"):
        put(tmp_path / f"access.log.1.{packed}", "packed")
    put(log, "2\n")
    assert follower.lines() == ["2"]
    for n in (2, 3):
        put(log, f"{n}\n")
        log.rename(tmp_path / f"access.log.{n}")
        log.write_text("")
    with raised(MeasurementError, log, "more than once"):
        follower.lines()
    follower.close()


def test_a_log_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path / "later.log")
    assert follower.lines() == []
    (tmp_path / "later.log").write_text("first\n")
    assert follower.lines() == ["first"]
    follower.close()


@pytest.mark.promise(
    "a PID file is stale, a log is rotated or truncated, or a service restarts during a window"
)
@pytest.mark.parametrize("then", ["", "another line that is longer than all that was before\n" * 3])
def test_a_truncated_log_gives_no_measurement(follower: LogFollower, log: Path, then: str) -> None:
    put(log, "a line\n")
    follower.lines()
    with log.open("r+") as file:
        file.truncate(0)
        file.write(then)
    with raised(MeasurementError, "window"):
        follower.lines()


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="is not a file"):
        LogFollower(tmp_path)


def test_a_line_without_end_takes_bounded_memory(follower: LogFollower, log: Path) -> None:
    put(log, "x" * (3 * LONGEST))
    assert follower.lines() == []
    put(log, "\nnext\n")
    first, second = follower.lines()
    assert (len(first), second) == (LONGEST, "next")


@given(st.lists(st.binary(max_size=9), max_size=12))
def test_lines_do_not_depend_on_how_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    log.write_bytes(b"")
    follower, lines = LogFollower(log), []
    for part in parts:
        with log.open("ab") as file:
            file.write(part)
        lines += follower.lines()
    follower.close()
    *whole, _ = b"".join(parts).split(b"\n")
    assert lines == [line.decode(errors="replace") for line in whole]
