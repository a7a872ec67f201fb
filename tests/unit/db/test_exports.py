from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from db.exports import as_csv, as_json, as_parquet, as_table, columns
from db.history import HistoryRow
from tests.builders import START, setting
from tuner.core import Estimate, Phase, Setting, TrialState, Verdict

ABOUT = [
    *("study", "number", "attempt", "devices", "workload", "phase", "state", "verdict"),
    *("started_at", "ended_at", "censored", "reason", "why"),
]


@pytest.mark.parametrize("begins", ["=", "+", "-", "@"])
def test_no_cell_of_a_csv_begins_a_formula(begins: str) -> None:
    """See https://owasp.org/www-community/attacks/CSV_Injection."""
    hostile = replace(row({"mode": f"{begins}1+1"}), devices=(f"{begins}HYPERLINK(1)",))
    hostile = replace(hostile, metrics={"delta_j": Estimate(-2.0, 0.1)})
    (cells,) = csv.DictReader(io.StringIO(as_csv([hostile]), newline=""))
    assert cells["devices"] == f"'{begins}HYPERLINK(1)"
    assert cells["knob:mode"] == f"'{begins}1+1"
    assert cells["delta_j"] == "-2.0", "a number stays one"
    (cells,) = csv.DictReader(io.StringIO(as_csv([row({"mode": "\r=1+1\x1b[2J"})]), newline=""))
    assert cells["knob:mode"] == "\ufffd=1+1\ufffd[2J"


def row(at: Setting | None = None, metrics: Mapping[str, Estimate] | None = None) -> HistoryRow:
    return HistoryRow(
        study="s1",
        number=1,
        attempt=1,
        devices=("a", "b"),
        workload="inference",
        phase=Phase.TUNING,
        state=TrialState.COMPLETED,
        verdict=Verdict.FEASIBLE,
        setting=at if at is not None else setting(),
        load={"requests_in_system": 8.0} if at is None or "on" not in at else {},
        metrics=dict(metrics if metrics is not None else {"energy_j": Estimate(2.0, 0.1)}),
        started_at=START,
        ended_at=None,
        censored=False,
        reason='said "no", twice',
        why="größer\nals",
    )


ROWS = (
    row({"z": 1, "on": True}, {"power_w": Estimate(3.0, 0.1, 5, 2.0, math.inf)}),
    row({"governor": "performance", "z": 1.5}),
)


def test_columns_have_one_order_for_any_order_of_rows() -> None:
    assert columns(ROWS) == columns(ROWS[::-1])
    assert list(columns(())) == ABOUT
    about = [*ABOUT, "knob:governor", "knob:on", "knob:z", "load:requests_in_system"]
    assert list(columns(ROWS))[: len(about) + 2] == [*about, "energy_j", "energy_j:stderr"]


def test_json_keeps_values_and_has_null_for_unbounded_ones() -> None:
    first, second = json.loads(as_json(ROWS))
    assert first["setting"] == {"z": 1, "on": True} and first["setting"]["on"] is True
    assert first["metrics"]["power_w"] == {
        "mean": 3.0,
        "stderr": 0.1,
        "n": 5,
        "low": 2.0,
        "high": None,
        "origin": "measured",
        "scope": "board",
    }
    assert (first["load"], second["load"]) == ({}, {"requests_in_system": 8.0})
    assert second["devices"] == ["a", "b"]
    assert (second["started_at"], second["ended_at"]) == (START.isoformat(), None)
    assert (second["verdict"], second["why"]) == ("feasible", "größer\nals")


def test_csv_reads_back_with_awkward_text() -> None:
    first, second = csv.DictReader(io.StringIO(as_csv(ROWS)))
    assert (first["knob:on"], first["knob:governor"], second["knob:on"]) == ("True", "", "")
    assert (first["power_w"], first["power_w:high"], first["energy_j"]) == ("3.0", "", "")
    loads = [one["load:requests_in_system"] for one in (first, second)]
    assert loads == ["", "8.0"]
    assert (second["reason"], second["why"]) == (ROWS[1].reason, ROWS[1].why)
    assert (second["devices"], second["verdict"]) == ("a b", "feasible")


def test_parquet_keeps_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    as_parquet(ROWS, tmp_path / "history.parquet")
    table = parquet.read_table(tmp_path / "history.parquet")
    assert tuple(table.column_names) == columns(ROWS)
    first, second = table.to_pylist()
    assert first["started_at"] == START and first["started_at"].tzinfo is not None
    assert (first["knob:on"], second["knob:on"]) == (True, None)
    assert (first["knob:z"], second["knob:z"]) == (1.0, 1.5)
    assert (first["power_w"], first["power_w:n"], first["power_w:high"]) == (3.0, 5, None)
    assert (first["ended_at"], first["verdict"]) == (None, "feasible")


def test_a_knob_of_numbers_and_words_is_a_column_of_text() -> None:
    pytest.importorskip("pyarrow")
    table = as_table([row({"z": 1}), row({"z": "auto"}), row({"on": True})])
    assert table.column("knob:z").to_pylist() == ["1", "auto", None]


def test_parquet_has_the_same_types_with_any_missing_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    ended = replace(row(), ended_at=START.astimezone(UTC), verdict=None)
    for name, rows in (("none", [row()]), ("some", [ended])):
        as_parquet(rows, tmp_path / name)
    schemas = [parquet.read_schema(tmp_path / name) for name in ("none", "some")]
    assert schemas[0].equals(schemas[1])
    as_parquet([], tmp_path / "empty")
    assert parquet.read_table(tmp_path / "empty").num_rows == 0
