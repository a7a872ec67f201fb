"""`jouletune finetune admit`: an answer by measured windows, or the reason if they do not suffice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli.app import main

HEADER = "batch_size,latency_p99_ms,latency_p99_ms:stderr,finetuning_gflop,finetuning_flop_per_byte"
JOBS = ((0.0, 0.0), (60.0, 40.0), (200.0, 40.0), (120.0, 15.0), (200.0, 80.0))
JOB = ("--gflop", "150", "--flop-per-byte", "40", "--batch", "8")


def law(batch: int, gflop: float, intensity: float) -> float:
    return 20.0 + 12.0 * batch + 1.8 * gflop - 0.3 * intensity


def table(folder: Path, header: str = HEADER, more: str = "", after: str = "") -> Path:
    """Write windows that follow a linear law; `more` is added to the header, `after` to every row."""
    rows = [
        f"{batch},{law(batch, *job)},2.0,{job[0] or ''},{job[1] or ''}{after}"
        for batch in (4, 8, 16)
        for job in JOBS
    ]
    path = folder / "windows.csv"
    path.write_text("\n".join([header + more, *rows]) + "\n")
    return path


def ask(path: Path, slo: str = "latency_p99_ms <= 700", *options: str) -> int:
    return main(("finetune", "admit", "--windows", str(path), "--constraint", slo, *JOB, *options))


def test_a_job_is_admitted_only_under_a_limit_that_it_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    truth = law(8, 150.0, 40.0)
    assert ask(path, f"latency_p99_ms <= {truth + 20}") == 0
    assert capsys.readouterr().out.startswith("admitted: latency_p99_ms is predicted at 374")
    assert ask(path, f"latency_p99_ms <= {truth + 1}") == 1
    assert capsys.readouterr().out.startswith("not admitted: latency_p99_ms is predicted at 374")


def test_the_answer_is_json_if_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(table(tmp_path), "latency_p99_ms <= 700", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["admitted"] is True
    assert found["predicted"]["mean"] == pytest.approx(law(8, 150.0, 40.0))


def test_a_job_larger_than_any_seen_is_not_guessed_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(table(tmp_path), "latency_p99_ms <= 9999", "--gflop", "900") == 1
    assert "mix of this size" in capsys.readouterr().out


def test_exported_histories_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = HEADER.replace("batch_size", "knob:batch_size")
    more = ",state,censored,latency_p99_ms:high,knob:gpu.clock_mhz"
    path = table(tmp_path, header, more, ",completed,False,400,1000")
    with path.open("a") as file:  # none of these proves anything
        file.write("8,1,0,150,40,failed,False,400,1000\n")
        file.write("8,1,0,150,40,completed,True,400,1000\n")
        file.write("8,1,0,150,40,completed,False,,1000\n")
        file.write("8,,,150,40,aborted,False,,1000\n")
    assert ask(path) == 0
    assert "(15 windows)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "slo", "words"),
    [
        (None, "latency_p99_ms <= 700", "cannot read"),
        ("", "latency_p99_ms <= 700", "lacks the columns batch_size"),
        ("batch_size,latency_p99_ms\n8,100\n", "latency_p99_ms <= 700", "columns finetuning_gflop"),
        (f"{HEADER}\n8,nan,1,1,40\n", "latency_p99_ms <= 700", "row 2: latency_p99_ms = 'nan'"),
        (f"{HEADER}\n,9,1,1,40\n", "latency_p99_ms <= 700", "row 2: batch_size = ''"),
        (
            f"{HEADER}\n8.5,9,1,1,40\n",
            "latency_p99_ms <= 700",
            "batch_size = '8.5' is not an integer >= 1",
        ),
        (f"{HEADER}\n0,9,1,1,40\n", "latency_p99_ms <= 700", "batch_size = '0' is not an integer"),
        (f"{HEADER}\n8,0,1,1,40\n", "latency_p99_ms <= 700", "_ms = '0' must be clearly above"),
        (f"{HEADER}\n8,9,1,60,\n", "latency_p99_ms <= 700", "finetuning_flop_per_byte = ''"),
        (f"{HEADER}\n8,9,1,,40\n", "latency_p99_ms <= 700", "row 2: finetuning_gflop = ''"),
        (
            f"{HEADER},knob:clock\n8,9,1,1,40,5\n8,9,1,1,40,6\n",
            "latency_p99_ms <= 700",
            "several values of knob:clock",
        ),
        (f"{HEADER}\n8,9,1,1,40\n", "latency_p99_ms <= 1.2x baseline", "is relative"),
        (f"{HEADER}\n8,9,1,1,40\n", "fast", "cannot read the constraint"),
    ],
)
def test_bad_input_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, slo: str, words: str
) -> None:
    path = tmp_path / "windows.csv"
    if text is not None:
        path.write_text(text)
    assert ask(path, slo) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("latency_p99_ms <= 1.2x baseline", "relative to a baseline"),
        ("throughput_per_s >= 5", "not an upper limit"),
        ("latency_p9_ms <= 5", "does not measure latency_p9_ms; choose one of: latency_p50_ms,"),
        ("cpu_time_ms <= 5", "does not measure cpu_time_ms"),
    ],
)
def test_a_limit_that_cannot_pace_is_refused_before_the_job_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str, words: str
) -> None:
    command = ("--workload", "reference", "--constraint", limit, "--", "touch", str(tmp_path / "x"))
    assert main(("finetune", "run", *command)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
