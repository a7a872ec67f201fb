"""`jouletune finetune run`: limits by which a job cannot be paced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cli.app import main


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("latency_p99_ms <= 1.2x baseline", "relative to a baseline"),
        ("throughput_per_s >= 5", "not an upper limit"),
        ("latency_p9_ms <= 5", "does not measure latency_p9_ms; choose one of: latency_p50_ms,"),
        ("cpu_time_ms <= 5", "does not measure cpu_time_ms"),
        ("fast", "cannot read the constraint"),
    ],
)
def test_a_limit_that_cannot_pace_is_refused_before_the_job_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str, words: str
) -> None:
    command = ("--workload", "reference", "--constraint", limit, "--", "touch", str(tmp_path / "x"))
    assert main(("finetune", "run", *command)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
