"""`jouletune packrat measure` as a black box, on a made-up machine."""

from __future__ import annotations

import csv
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tuner.profiling.packrat.machine import Machine
from tuner.cli.app import main
from tuner.profiling.packrat.packings import Shapes
from tuner.profiling.turns import TimedBatches


class FakeTimer:
    """Replaces the processes: a batch takes the time of `seconds`; `luck` is as in `Machine`."""

    luck: Sequence[float] = ()

    def __init__(self, *_: object) -> None:
        self._machine = Machine(luck=self.luck)

    def __enter__(self) -> FakeTimer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def window(self, shapes: Shapes, length_s: float, allocator: str) -> TimedBatches:
        return self._machine.window(shapes)

    def own_bytes(self, allocator: str) -> int:
        return 1 << 20


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from tuner.profiling.packrat import timing

    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    yield


def asked(*options: str) -> list[str]:
    return ["packrat", "measure", "--windows", "2", *options]


def test_the_command_prints_every_batch_and_the_result(
    timed: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "profile.csv"
    assert main(asked("--json", "--out", str(out))) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    batches = [b for m in answer["models"] for b in m["batches"]]
    assert [b["batch"] for b in batches] == [1, 2, 4, 8, 16]
    assert answer["speedup_max"] == max(b["speedup"] for b in batches) > 1.0
    errors = [
        100.0 * (b["predicted_latency_s"] / b["latency_s"] - 1.0)
        for b in batches
        if b["plan"] == b["candidate"] and b["confirming"] is not None
    ]
    assert len(errors) >= 2
    assert answer["prediction_error_median_percent"] == pytest.approx(
        statistics.median(map(abs, errors))
    )
    assert answer["prediction_error_least_percent"] == pytest.approx(min(errors))
    assert answer["prediction_error_most_percent"] == pytest.approx(max(errors))
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {r["model"] for r in rows} == {"reference"}
    # `packrat plan` reads the measured profile.
    plan = ["packrat", "plan", "--profile", str(out), "--model", "reference", "--json"]
    assert main([*plan, "--threads", "2", "--batch", "8"]) == 0
    planned = json.loads(capsys.readouterr().out)
    shown = next(b for b in batches if b["batch"] == 8)
    # The prediction beside a measurement excludes the windows of that plan.
    assert planned["predicted_latency_s"] == pytest.approx(shown["predicted_latency_s"], rel=0.05)


def test_the_command_prints_a_table(timed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked()) == 0
    text = capsys.readouterr().out
    assert "2×⟨1,8⟩" in text and "the single instance" in text
    assert "speed-up  mean" in text and "predicted  median error" in text
    assert "none of 5 slower than the single instance beyond noise" in text


def test_the_command_lists_unconfirmed_plans_and_later_losses(
    timed: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows each: 8 side by side, then for each batch size 2 to confirm and 2 to report."""
    monkeypatch.setattr(FakeTimer, "luck", [1.0] * 8 + [2.0] * 2 + [1.0] * 2 + [2.0] * 2)
    assert main(["packrat", "measure", "--windows", "2"]) == 0
    text = capsys.readouterr().out
    assert "batch 2: 2×⟨1,1⟩ measured 0." in text
    assert "1 of 5 slower than the single instance beyond noise" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batches", "1,x"], "--batches cannot be '1,x'"),
        (["--batches", "0"], "--batches cannot be '0'"),
        (["--threads", "3"], "this process can use 2 cores"),
        (["--out", "/no/such/folder/x.csv"], "cannot write /no/such/folder/x.csv"),
    ],
)
def test_bad_input_is_one_clear_line(
    timed: None, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(asked(*options)) == 2
    assert message in capsys.readouterr().err
