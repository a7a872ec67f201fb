"""`python -m tests.bench surfaces`: its output, its refusals, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench.commands import commands
from tests.bench.contest.runs import Failure, Job
from tests.bench.contest.tables import HEADER, ROLES, STEEP, write_tables
from tuner.cli.app import main

ROW = {
    "tuner", "slack", "budget", "captured", "captured_stderr", "windows_above", "violations",
    "overshoot", "worst_overshoot", "wrong_deployments", "seconds_per_suggestion", "surfaces",
}  # fmt: skip
QUICK = ("--tuners", "sobol,hillclimb", "--seeds", "2", "--budgets", "2,4", "--jobs", "1")


def bench(folder: Path, *options: str) -> int:
    return main(["surfaces", str(folder), *options], commands)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tables(tmp_path / "surfaces")


def without_seconds(text: str) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(text)
    assert written.pop("measured")["seconds"] >= 0.0
    for row in (*written["rows"], *written["by_source"]):
        assert row.pop("seconds_per_suggestion") >= 0.0
    return written


def test_json_has_the_rows_on_stdout_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(folder, *QUICK, "--json") == 0
    out, err = capsys.readouterr()
    written = json.loads(out)
    assert set(written["measured"]) == {
        "version", "commit", "machine", "seed", "at", "seconds",
    }  # fmt: skip
    assert set(written) == {
        "measured", "seeds", "noise", "rows", "by_source", "pairs", "pairs_by_source", "controls",
        "seconds_above_limit", "generalisations", "failures",
    }  # fmt: skip
    asked = [(t, s, b) for t in ("sobol", "hillclimb") for s in (1.1, 1.25) for b in (2, 4)]
    assert [(r["tuner"], r["slack"], r["budget"]) for r in written["rows"]] == asked
    assert {frozenset(r) for r in written["rows"]} == {frozenset(ROW)}
    assert {frozenset(r) for r in written["by_source"]} == {frozenset({*ROW, "source"})}
    assert {r["surfaces"] for r in written["rows"]} == {1}, "the flat surface is left out"
    assert written["failures"] == written["controls"] == []
    assert "8 of 8 studies" in err


def test_tables_are_markdown_and_the_files_are_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, plot = tmp_path / "found.json", tmp_path / "found.png"
    files = ("--output", str(output), "--plot", str(plot))
    options = ("--tuners", "ours,sobol", "--seeds", "1", "--budgets", "2", "--slack", "1.1")
    assert bench(folder, *options, "--jobs", "1", *files) == 0
    out = capsys.readouterr().out
    assert "Limit 1.1 × the true baseline, 1 surface:" in out
    assert "| tuner | captured @2 |" in out
    assert "Ours against each rival" in out
    assert "Flat surfaces, after confirming:" in out
    widths = {line.count("|") for line in out.splitlines() if line.startswith("| sobol")}
    assert len(widths) == 2
    written = json.loads(output.read_text())
    assert [p["rival"] for p in written["pairs"]] == ["sobol"]
    assert [(c["tuner"], c["surfaces"]) for c in written["controls"]] == [("ours", 1)]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_made_up_surfaces_are_listed_by_kind_and_are_reproducible(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(*options: str) -> dict[str, Any]:
        quick = ("--tuners", "ours,sobol", "--seeds", "1", "--budgets", "2", "--slack", "1.1")
        assert main(["made-up", *quick, "--surfaces", "26", *options, "--json"], commands) == 0
        return without_seconds(capsys.readouterr().out)

    few = ("--sources", "queue,runtime", "--surfaces-per-source", "1")
    first = told(*few)
    assert first == told(*few)
    assert first["failures"] == []
    assert {(r["source"], r["surfaces"]) for r in first["by_source"]} == {
        ("queue", 1),
        ("runtime", 1),
    }
    assert {p["source"] for p in first["pairs_by_source"]} == {"queue", "runtime"}
    other = told(*few, "--seed", "1")
    assert [r["captured"] for r in other["rows"]] != [r["captured"] for r in first["rows"]]


def test_a_choice_is_scored_on_sources_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = tmp_path / "variants.toml"
    variants.write_text('[spread]\npolicy = "sobol"\n[climb]\npolicy = "hillclimb"\n')
    small = (
        "--surfaces",
        "4",
        "--seeds",
        "1",
        "--budgets",
        "2,4",
        "--slack",
        "1.25",
        "--jobs",
        "1",
    )
    chosen = ("--tuners", "optuna-tpe", "--variants", str(variants), "--leave-one-out")
    output = tmp_path / "found.json"
    assert main(["made-up", *small, *chosen, "--output", str(output)], commands) == 0
    out = capsys.readouterr().out
    assert "| source left out | chosen | captured @2/4 |" in out
    assert "| in-sample captures more by |" in out
    (generalisation,) = json.loads(output.read_text())["generalisations"]
    assert generalisation["candidates"] == ["spread", "climb"]
    assert [s["source"] for s in generalisation["sources"]] == [
        "queue",
        "sockets",
        "tiles",
        "throttling",
    ]
    assert len(generalisation["difference"]) == len(generalisation["in_sample"]) == 2


def test_a_ceiling_tuner_knows_every_setting_and_breaks_no_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--tuners", "ours,ceiling", "--seeds", "1", "--budgets", "1,2", "--slack", "1.1")
    assert bench(folder, *options, "--jobs", "1", "--json") == 0
    written = json.loads(capsys.readouterr().out)
    ceilings = [r for r in written["rows"] if r["tuner"] == "ceiling"]
    assert [r["budget"] for r in ceilings] == [1, 2]
    assert len({r["captured"] for r in ceilings}) == 1
    assert ceilings[0]["captured"] > 0.0
    assert {r["windows_above"] for r in ceilings} == {0.0}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tuners", "ours,magic"), "no tuner 'magic'"),
        (("--tuners", ","), "--tuners names nothing"),
        (("--tuners", "sobol,sobol"), "--tuners names nothing, or something twice"),
        (("--slack", "0"), "--slack"),
        (("--slack", "-1.1"), "--slack"),
        (("--slack", "0.9"), "--slack"),
        (("--slack", "nan"), "--slack"),
        (("--slack", "much"), "--slack 'much'"),
        (("--budgets", "5,0"), "--budgets"),
        (("--budgets", "5.5"), "--budgets '5.5'"),
        (("--seeds", "0"), "--seeds"),
        (("--noise", "-0.1"), "--noise"),
        (("--noise", "nan"), "--noise"),
        (("--plot", "nowhere/a.png"), "--plot"),
        (("--plot", "a.jpeg"), "--plot"),
        (("--output", "nowhere/a.json"), "--output"),
        (("--jobs", "0"), "jobs"),
        (("--sources", "tiny,huge"), "no source 'huge'"),
        (("--tuners", "sobol", "--leave-one-out"), "--leave-one-out has nothing to choose among"),
        (("--tuners", "ours,ours-strict", "--leave-one-out"), "two sources at least"),
        (("--most-above", "-1"), "--most-above"),
        (("--without", "luck"), "no rule luck"),
        (("--variants", "nowhere.toml"), "cannot read nowhere.toml"),
    ],
)
def test_bad_options_give_a_one_line_error_before_anything_runs(
    folder: Path, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(folder, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("surfaces.toml", None, "no surfaces.toml"),
        ("surfaces.toml", ROLES.replace("gpu_clock_mhz", "clock"), "clock"),
        ("tiny.csv", None, "names no table"),
        ("tiny.csv", "a,b\n1,2\n", "no column surface"),
        ("tiny.csv", HEADER + STEEP.replace("10,1.0", "nan,1.0"), "energy_j = 'nan'"),
    ],
)
def test_a_folder_with_an_invalid_file_ends_in_a_one_line_error(
    folder: Path, name: str, text: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    assert bench(folder, *QUICK) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_missing_package_is_reported_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.contest.contest.find_spec", lambda _: None)
    assert bench(folder, "--tuners", "optuna-gp") == 2
    assert "pip install -e '.[dev]'" in capsys.readouterr().err
    assert bench(folder, "--tuners", "sobol", "--plot", "a.png") == 2
    assert "--plot needs matplotlib" in capsys.readouterr().err


def test_a_study_that_broke_down_is_named_and_the_command_fails(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(jobs: list[Job], processes: int, done: Any) -> list[object]:  # noqa: ANN401
        results: list[object] = [Failure(str(job.task), "boom") for job in jobs]
        for result in results:
            done(result)
        return results

    monkeypatch.setattr("tests.bench.contest.runs.run_all", half)
    assert bench(folder, *QUICK, "--json") == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)["failures"]) == 8
    assert "sobol on tiny, T|w (slack 1.1, seed 0) broke down: boom" in err
    assert "error: 8 of 8 studies broke down" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_file_that_cannot_be_written_at_the_end_loses_no_figures(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    assert bench(folder, *QUICK, "--output", str(full)) == 2
    out, err = capsys.readouterr()
    assert "sobol" in out
    assert "error: cannot write" in err
    assert "No space left" in err


@pytest.mark.parametrize("killed", [False, True])
def test_the_benchs_processes_end_with_it(folder: Path, killed: bool) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from tests.bench.commands import commands; from tuner.cli.app import main;"
        "sys.exit(main(sys.argv[1:], commands))"
    )
    command = [sys.executable, "-c", code, "surfaces", str(folder)]
    endless = ["--tuners", "sobol", "--seeds", "800"]
    with subprocess.Popen([*command, *endless], stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert "studies" in run.stderr.readline(), "the first of its lines of progress"
        children = psutil.Process(run.pid).children(recursive=True)
        workers = [c for c in children if "spawn_main" in " ".join(c.cmdline())]
        assert workers
        run.kill() if killed else run.send_signal(2)
        assert run.wait(timeout=10) == (-9 if killed else 130)
        assert psutil.wait_procs(workers, timeout=10)[1] == []
        errors = run.stderr.read()
        assert "Traceback" not in errors
        assert killed or errors.endswith("error: interrupted\n")
