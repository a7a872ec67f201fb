from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from tests.errors import raised
from tuner.core import Estimate, InvalidInput, Phase, Setting, Trial
from tuner.profiling.speculation import (
    DRAFT,
    LENGTH,
    RATE,
    SIGNAL,
    as_csv,
    planned,
    profiling_trial,
    read_profile,
)

ACCEPTED = (0.8, 0.6, 0.45, 0.35)


def rate(batch: int, length: int) -> float:
    """Drafting pays at few requests, and costs from sixteen on."""
    step = 1.0 + 0.1 * length + 0.2 * batch * (1 + length)
    return batch * (1.0 + math.fsum(ACCEPTED[:length])) / step


def windows() -> list[Trial]:
    cells = [(b, s) for b in (1, 2, 4, 8, 16, 32) for s in (0, 2, 4)]
    trials = []
    for number, (batch, length) in enumerate(cells, 3):
        shown = {
            "throughput_per_s": Estimate.of_mean(
                rate(batch, length), 0.01 * rate(batch, length), 50
            )
        }
        for position in range(length):
            shown[f"accepted_at_{position + 1}"] = Estimate.of_mean(ACCEPTED[position], 0.01, 500)
        setting: Setting = {LENGTH: length, DRAFT: "wide"}
        trials.append(profiling_trial(number, setting, float(batch), shown, Phase.TUNING))
    return trials


def test_a_written_profile_is_read_back_and_planned(tmp_path: Path) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(as_csv(windows()))
    space, trials = read_profile(file)
    tuning = [t for t in trials if t.phase is Phase.TUNING]
    assert [(t.context, dict(t.setting)) for t in tuning] == [
        (t.context, dict(t.setting)) for t in windows()
    ]
    assert tuning[5].shown["accepted_at_4"].mean == ACCEPTED[3]
    plan = planned(space, trials).plan
    first = plan.rows[plan.row({SIGNAL: 1.0})].setting[LENGTH]
    last = plan.rows[plan.row({SIGNAL: 32.0})].setting[LENGTH]
    assert rate(1, int(first)) > rate(1, 0) and last == 0
    assert planned(space, trials).plan == plan


def rows() -> list[dict[str, str]]:
    return [
        {SIGNAL: "1", LENGTH: length, DRAFT: "wide", RATE: rate_, f"{RATE}_stderr": "1"}
        for length, rate_ in (("0", "90"), ("4", "150"))
    ]


@pytest.mark.parametrize(
    ("row", "column", "text", "message"),
    [
        (0, LENGTH, "3", "has no row of length 0 at 1 requests"),
        (1, "throughput_per_s", "nan", "not a finite number"),
        (1, "throughput_per_s", "0", "throughput_per_s must be above 0"),
        (1, "throughput_per_s", "", "throughput_per_s must be above 0"),
        (1, LENGTH, "1.5", "speculation_length = '1.5' is not an integer >= 0"),
        (1, SIGNAL, "0", "decoding_requests = '0' is not an integer >= 1"),
        (1, SIGNAL, "many", "not a finite number"),
    ],
)
def test_an_invalid_row_is_named(
    tmp_path: Path, row: int, column: str, text: str, message: str
) -> None:
    table = rows()
    table[row][column] = text
    file = tmp_path / "profile.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    with pytest.raises(InvalidInput, match=message):
        read_profile(file)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "decoding_requests\n"])
def test_an_invalid_profile_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(text)
    with raised(InvalidInput, "lacks the columns"):
        read_profile(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with raised(InvalidInput, "read"):
        read_profile(tmp_path / "none.csv")
