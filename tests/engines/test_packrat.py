"""The program of `make bench-packrat`, on a made-up machine."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence

import pytest

pytest.importorskip("torch", reason="the workers' timer needs torch")

from tests.bench.turns import TimedBatches
from tests.engines import packrat, timing
from tests.engines.machine import Machine
from tests.engines.packings import Shapes


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


def test_each_model_is_measured_and_its_errors_are_those_of_its_plans(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    packrat.main(models="mobilenet,bert", windows=2)
    answer = json.loads(capsys.readouterr().out)
    assert [m["model"] for m in answer["models"]] == ["mobilenet", "bert"]
    batches = [b for m in answer["models"] for b in m["batches"]]
    assert [b["batch"] for b in batches] == [1, 2, 4, 8, 16] * 2
    assert answer["speedup_max"] == max(b["speedup"] for b in batches) > 1.0
    errors = [
        100.0 * (b["predicted_latency_s"] / b["latency_s"] - 1.0)
        for b in batches
        if b["plan"] == b["candidate"] and b["confirming"] is not None
    ]
    assert len(errors) >= 2
    median = statistics.median(map(abs, errors))
    assert answer["prediction_error_median_percent"] == pytest.approx(median)
    assert answer["prediction_error_least_percent"] == pytest.approx(min(errors))
    assert answer["prediction_error_most_percent"] == pytest.approx(max(errors))
