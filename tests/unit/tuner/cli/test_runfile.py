"""The stored state of a run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tuner.cli.runfile import NAME, RunJob, RunRecord, read_run, write_run
from tuner.core import ConfigError

RECORD = RunRecord(
    db="postgresql://u:secret@h/d",
    seed=3,
    jobs=[
        RunJob(device="simulated:orin", study="a1", control="b2", reported=True),
        RunJob(device="cpu", workload="reference", constraints=("latency_p99_ms <= 50",)),
    ],
)


def test_written_values_are_read_back_equal(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None
    write_run(tmp_path, RECORD)
    assert read_run(tmp_path) == RECORD
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_a_run_is_finished_once_every_job_is_reported() -> None:
    assert not RECORD.finished
    assert RECORD.model_copy(update={"jobs": RECORD.jobs[:1]}).finished


def test_a_job_passes_device_and_workload_to_the_agent() -> None:
    assert [job.spec for job in RECORD.jobs] == ["simulated:orin", "cpu=reference"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "Invalid JSON"),
        ('{"db": "x", "jobs": [{"devise": "cpu"}]}', "jobs.0"),
        ('{"db": "x", "jobs": [], "version": 9}', "version 9"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ConfigError, match=where) as refused:
        read_run(tmp_path)
    assert str(tmp_path / NAME) in refused.value.message
    assert "delete it" in refused.value.hint
