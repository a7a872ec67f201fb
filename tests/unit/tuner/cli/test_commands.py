"""The noun commands over a database with one study that holds."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.errors import has_a_next_step
from tests.golden import golden, steady
from tests.unit.tuner.cli import worlds
from tuner.cli.app import REMOVED, main

Answer = tuple[int, str, str]
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("tuned")
    return folder / worlds.FILE, worlds.database(folder)


def test_a_plan_of_several_rows_is_shown_with_the_study_and_its_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = worlds.database(tmp_path, policy="by-load")
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")
    monkeypatch.setenv("COLUMNS", "200")
    for command in (["study", "show"], ["best"]):
        assert main([*command, made]) == 0
        text = steady(capsys.readouterr().out, STUDY=made)
        golden(" ".join(command), "a plan of several rows", text)


@pytest.mark.parametrize(("policy", "loads"), [("at-load", 4), ("by-load", 0)])
def test_the_requested_load_of_trials_is_shown_if_there_is_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    loads: int,
) -> None:
    made = worlds.database(tmp_path, policy=policy, about=worlds.ASKABLE)
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")

    def told(*command: str, width: int = 250) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(command) == 0
        return capsys.readouterr().out

    contexts = [t["context"] for t in json.loads(told("trial", "list", made, "--json"))]
    assert contexts == [{}] * 4 + [{"requests_in_system": 2}] * loads + [{}] * (4 - loads)
    assert ("at load" in told("trial", "list", made)) is (loads > 0)
    assert told("trial", "list", made, width=100).count("requests_in_system = 2") == loads
    assert "mode        search\n" in told("study", "show", made)


@pytest.fixture
def study(tuned: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    template, made = tuned
    copy = shutil.copy(template, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{copy}")
    monkeypatch.setenv("COLUMNS", "200")
    return made


@pytest.fixture
def ask(study: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    def answer(*arguments: str) -> Answer:
        code = main(arguments)
        return (code, *capsys.readouterr())

    return answer


def parsed(answer: Answer) -> Any:  # noqa: ANN401
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_study_is_shown_with_its_limit_and_revisions(ask: Ask, study: str) -> None:
    answer = parsed(ask("study", "show", study, "--json"))
    assert answer["study"]["best"]["setting"] == {"gpu.clock_mhz": 600, "batch_size": 1}
    assert answer["revisions"][0]["who"] == "ann"
    assert answer["saving"]["mean"] == pytest.approx(0.4)
    assert answer["bill"]["explored_j"] > 0.0
    counted = {"tried": 4, "broken": 0, "rate": 0.0, "seconds": 0.0, "held": 0}
    assert answer["study"]["violations"] == counted


def test_a_part_that_stays_at_the_baseline_is_named(ask: Ask, study: str) -> None:
    code, _, error = ask("study", "setting", study, "--part", "workload")
    assert code == 1 and "holds the workload's part of the baseline" in error


def test_constraints_are_replaced_and_every_version_is_kept(ask: Ask, study: str) -> None:
    changed = parsed(ask("constraint", "set", study, "latency_p99_ms <= 130", "--json"))
    assert changed["constraints"] == ["latency_p99_ms <= 130.0"]
    answer = parsed(ask("constraint", "list", study, "--json"))
    assert answer["limits"] == [{"metric": "latency_p99_ms", "op": "<=", "value": 130.0}]
    assert answer["revisions"][0]["constraints"] == [str(worlds.LIMIT)]
    assert ask("constraint", "set", study, "latency_p99_ms <= 130")[0] == 0
    assert parsed(ask("constraint", "list", study, "--json"))["revisions"] == answer["revisions"]


def test_constraints_are_removed_by_a_separate_command(ask: Ask, study: str) -> None:
    assert ask("constraint", "set", study)[0] == 2
    assert ask("constraint", "clear", study)[0] == 0
    assert parsed(ask("constraint", "list", study, "--json"))["constraints"] == []


def test_a_study_is_paused_resumed_stopped_and_deleted(ask: Ask, study: str) -> None:
    assert ask("study", "pause", study, "--why", "lunch")[0] == 0
    answer = parsed(ask("study", "show", study, "--json"))
    assert (answer["study"]["phase"], answer["revisions"][-1]["why"]) == ("paused", "lunch")
    assert parsed(ask("study", "resume", study, "--json"))["phase"] == "holding"
    code, _, err = ask("study", "delete", study, "--yes")
    assert (code, err.count("\n")) == (1, 1)
    assert parsed(ask("study", "stop", study, "--yes", "--json"))["phase"] == "stopped"
    assert parsed(ask("study", "delete", study, "--yes", "--json")) == {"deleted": study}
    assert parsed(ask("study", "list", "--json")) == []
    assert parsed(ask("device", "forget", "sim", "--json")) == {"forgotten": "sim"}
    assert parsed(ask("device", "list", "--json")) == []


def test_every_command_takes_the_beginning_of_a_studys_id(ask: Ask, study: str) -> None:
    short = study[:5]
    for command in (
        ["study", "show", short],
        ["trial", "list", short],
        ["best", short],
        ["best", short, "--pareto"],
        ["constraint", "list", short],
        ["history", "--study", short],
        ["events", "--study", short],
    ):
        whole = [study if word == short else word for word in command]
        answers = [parsed(ask(*words, "--json")) for words in (command, whole)]
        if "show" in command:  # counted back from now
            assert all(answer["bill"].pop("periods") for answer in answers)
        assert answers[0] == answers[1]
    # Its policy is no longer installed: the error is about the study, which was found.
    assert ask("study", "explain", short) == ask("study", "explain", study)
    for command in (
        ["study", "pause"],
        ["study", "resume"],
        ["constraint", "clear"],
        ["study", "stop", "--yes"],
        ["study", "delete", "--yes"],
    ):
        code, out, _ = ask(*command, short)
        assert code == 0
        assert f"study {study}" in out


def test_a_studys_open_values_are_chosen_as_by_a_run_and_reported(ask: Ask, study: str) -> None:
    ask("study", "stop", study, "--yes")
    create = ("study", "create", "--device", "sim", "--policy", "sobol")
    code, _, err = ask(*create)
    assert code == 0
    assert "latency_p99_ms" in err and "throughput_per_s" in err
    made = parsed(ask("study", "list", "--json"))[0]
    assert (made["terms"]["window_s"], made["terms"]["max_window_s"]) == (10.0, 60.0)
    ask("study", "stop", made["id"], "--yes")
    wishes = ("latency_p99_ms <= 50", "throughput_per_s >= 0.95x baseline")
    code, _, err = ask(*create, *(word for wish in wishes for word in ("--constraint", wish)))
    assert code == 0 and "latency_p99_ms" not in err and "throughput_per_s" not in err
    ask("study", "stop", parsed(ask("study", "list", "--json"))[0]["id"], "--yes")
    code, _, err = ask(*create, "--no-constraint", "--max-window", "5")
    assert code == 2 and "the longest window (5.0 s)" in err and "give 10 s or more" in err
    code, _, err = ask(*create, "--no-constraint", "--max-window", "99")
    assert code == 0 and "--constraint was given" not in err
    made = parsed(ask("study", "list", "--json"))[0]
    assert (made["constraints"], made["terms"]["max_window_s"]) == ([], 99.0)


@pytest.mark.parametrize(
    "command", [("study", "stop", "STUDY"), ("study", "delete", "STUDY"), ("stop-all",)]
)
def test_ending_commands_confirm_and_need_yes_without_a_terminal(
    ask: Ask, study: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    if command[1:2] == ("delete",):
        ask("study", "stop", study, "--yes")
    typed = [study if word == "STUDY" else word for word in command]
    before = ask("study", "list", "--json")
    code, out, err = ask(*typed)
    assert (code, out) == (2, "") and "--yes" in err and "nothing was changed" in err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, _, err = ask(*typed)
    assert code == 1 and "?" in err
    assert ask("study", "list", "--json") == before


def test_history_is_narrowed(ask: Ask, study: str) -> None:
    assert len(parsed(ask("history", "--json"))) == 8
    assert parsed(ask("history", "--verdict", "infeasible", "--json")) == []
    assert parsed(ask("history", "--until", "2020-01-01", "--json")) == []
    assert parsed(ask("history", "--until", "100w", "--json")) == []
    rows = parsed(ask("history", "--device", "sim", "--study", study, "--state", "completed",
                      "--since", "2020-01-01", "--workload", "inference", "--json"))  # fmt: skip
    assert len(rows) == 8


def test_only_the_latest_rows_are_shown_oldest_first(ask: Ask, study: str) -> None:
    for command in (["history"], ["trial", "list", study]):
        everything = parsed(ask(*command, "--json"))
        assert parsed(ask(*command, "--limit", "3", "--json")) == everything[-3:]
        assert parsed(ask(*command, "--limit", "99", "--json")) == everything
        assert ask(*command, "--limit", "0")[0] == 2


def test_history_is_exported(ask: Ask, tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(ask("history", "--format", "csv")[1])))
    assert [row["knob:gpu.clock_mhz"] for row in table[:3]] == ["1000", "1000", "800"]
    file = tmp_path / "trials.parquet"
    code, out, err = ask("history", "--format", "parquet", "--output", str(file))
    assert (code, out) == (0, "")
    assert "8 trials" in err
    assert file.read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["history", "--verdict", "good"], "--verdict"),
        (["history", "--until", "2 years"], "--until"),
        (["history", "--output", "x.txt"], "--format"),
        (["history", "--format", "csv", "--output", "none/x.csv"], "none/x.csv"),
        (["study", "list", "--tuner", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["run", "--device", "cpu", "--tuner", "http://h"], "--keep"),
        (["run", "--device", "cpu", "--keep", "--tuner", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["study", "create", "--device", "sim", "--choose", "gpu.clock_mhz"], "gpu.clock_mhz"),
        (["study", "create", "--device", "sim", "--choose", "batch_size=1 if often"], "often"),
        (
            ["study", "create", "--device", "sim", "--choose", "batch_size=1,2 if fan > 1"],
            "fan",
        ),
    ],
)
def test_bad_input_is_one_line_that_names_it(ask: Ask, arguments: list[str], named: str) -> None:
    code, out, err = ask(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err and has_a_next_step(err)


@pytest.mark.parametrize("removed", REMOVED)
def test_what_was_removed_names_its_replacement(ask: Ask, removed: str) -> None:
    command, dashes, option = removed.partition(" --")
    gone = f"{command}` no longer has --{option}" if dashes else f"no longer has `{removed}`"
    for given in (removed, f"{removed}=1" if dashes else f"{removed} --help"):
        code, out, err = ask(*given.split())
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{gone}; {REMOVED[removed]}" in err


@pytest.mark.parametrize(
    "command",
    [
        ("study", "stop", "STUDY", "--why", "LONG"),
        ("stop-all", "--why", "LONG"),
        ("constraint", "set", "STUDY", "LONG"),
        ("constraint", "set", "STUDY", "energy_j <= \x1b[2J"),
        ("token", "create", "LONG", "--role", "viewer"),
        ("study", "create", "--device", "sim", "--constraint", "LONG"),
        ("study", "create", "--device", "sim", "--objective", "LONG"),
        ("study", "create", "--device", "sim", "--policy", "LONG"),
        ("study", "show", "LONG"),
        ("device", "forget", "LONG"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_text_that_no_message_takes_is_one_line_with_a_next_step(
    tuned: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    as_json: bool,
) -> None:
    path, study = Path(shutil.copy(tuned[0], tmp_path)), tuned[1]
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{path}")
    words = [{"STUDY": study, "LONG": "x" * 5_000}.get(word, word) for word in command]
    before = path.read_bytes()
    assert main([*words, *(["--json"] if as_json else [])]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and "\x1b" not in error
    assert len(error.splitlines()) == 1
    assert json.loads(error)["hint"] if as_json else has_a_next_step(error)
    assert path.read_bytes() == before
