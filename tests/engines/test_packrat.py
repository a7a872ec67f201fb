"""The program of `make bench-packrat`, on a made-up machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workers' timer needs torch")

from tests.engines import packrat
from tests.unit.tuner.cli.planning.test_packrat import FakeTimer
from tuner.profiling.packrat import timing


def test_each_model_is_measured_and_kept_in_one_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    out = tmp_path / "profile.csv"
    packrat.main(models="mobilenet,bert", windows=2, out=out, as_json=True)
    models = json.loads(capsys.readouterr().out)["models"]
    assert [m["model"] for m in models] == ["mobilenet", "bert"]
    assert [b["batch"] for m in models for b in m["batches"]] == [1, 2, 4, 8, 16] * 2
    rows = out.read_text().splitlines()[1:]
    assert {row.partition(",")[0] for row in rows} == {"mobilenet", "bert"}
