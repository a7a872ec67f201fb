"""A history as a data frame and as a file, and the keywords that filter it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from db.history import HistoryQuestion
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.client.history import History
from tuner.core import ConfigError, InvalidInput, StoreError, TrialState, Verdict
from tuner.verbs.questions import narrowed


@pytest.fixture(scope="module")
def tried() -> History:
    return History(worlds.held()[0].history(HistoryQuestion()))


def test_a_frame_has_a_row_a_trial_and_numbers_for_knobs_and_metrics(tried: History) -> None:
    pandas = pytest.importorskip("pandas")
    frame = tried.frame()
    assert len(frame) == len(tried) > 3
    clocks = frame["knob:gpu.clock_mhz"]
    assert pandas.api.types.is_numeric_dtype(clocks)
    assert clocks.tolist() == [row.setting["gpu.clock_mhz"] for row in tried]
    completed = frame[frame.state == "completed"]
    assert completed["energy_j"].min() == min(row.metrics["energy_j"].mean for row in tried)
    assert frame.started_at.dt.tz is not None


def test_a_slice_of_a_history_is_a_history(tried: History) -> None:
    assert [row.number for row in tried[:2]] == [tried[0].number, tried[1].number]
    assert "2 trials" in repr(tried[:2])


def test_parquet_is_written_or_the_file_is_named(tried: History, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    tried.parquet(tmp_path / "trials.parquet")
    assert len(pandas.read_parquet(tmp_path / "trials.parquet")) == len(tried)
    with raised(StoreError, "write"):
        tried.parquet(tmp_path / "missing" / "trials.parquet")


@pytest.mark.parametrize("absent", ["pandas", "pyarrow"])
def test_a_missing_package_is_reported_with_its_install_command(
    absent: str, tried: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with raised(ConfigError, absent) as refused:
        tried.frame()
    assert "jouletune[client]" in refused.value.hint


def test_keywords_narrow_as_the_command_line_does() -> None:
    before = datetime.now(UTC)
    question = narrowed(None, {"since": "2d", "verdict": "feasible", "state": TrialState.FAILED})
    assert question.since is not None and question.since - before >= timedelta(days=-2)
    assert (question.verdict, question.state) == (Verdict.FEASIBLE, TrialState.FAILED)
    assert narrowed(HistoryQuestion(device="a"), {"study": "s1"}).device == "a"


@pytest.mark.parametrize(
    ("name", "value"),
    [("verdict", "good"), ("state", "done"), ("since", "yesterday"), ("colour", "red")],
)
def test_an_invalid_keyword_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        narrowed(None, {name: value})
