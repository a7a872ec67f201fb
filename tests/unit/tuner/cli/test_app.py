"""The entry point: its imports and its errors."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from tests.processes import until
from tuner import cli
from tuner.cli import app
from tuner.cli.app import function, load
from tuner.cli.host.completion import option_names
from tuner.cli.table import NOUNS, SECTIONS, VERBS
from tuner.core import (
    ActuationError,
    ConfigError,
    Conflict,
    LinkError,
    NotFound,
    StoreError,
    TuningError,
    Unauthorised,
)

HEAVY = (
    "rich",
    "pydantic",
    "httpx2",
    "sqlalchemy",
    "fastapi",
    "torch",
    "numpy",
    "pynvml",
    "psutil",
)


@pytest.mark.parametrize(
    ("command", "shown", "typers"), [([], "doctor", ()), (["study"], "approve", ("pydantic",))]
)
def test_help_loads_nothing_heavy(command: list[str], shown: str, typers: tuple[str, ...]) -> None:
    """No verb and no vocabulary of ours is loaded; for a noun's help Typer itself loads pydantic."""
    code = (
        f"import sys, time; from tuner.cli.app import main; main({[*command, '--help']});"
        "print(time.process_time());"
        "print(*{n.split('.')[0] for n in sys.modules}, *(n for n in sys.modules if n[:6] == 'tuner.'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *help_text, seconds, loaded = done.stdout.strip().splitlines()
    assert shown in "".join(help_text)
    assert not (set(HEAVY) - set(typers)) & set(loaded.split())
    ours = {name for name in loaded.split() if name.startswith("tuner.")}
    assert ours == {"tuner.cli", "tuner.errors", "tuner.installed"} | {
        f"tuner.cli.{name}" for name in ("app", "reach", "table")
    }
    assert float(seconds) <= 0.3


def test_every_row_has_the_line_that_its_noun_shows_and_a_function() -> None:
    for path, module, line in VERBS:
        noun, _, name = path.rpartition(" ")
        assert not noun or noun in NOUNS
        assert line.endswith(".") and len(line) <= 64
        assert load(name, module).name == name


def test_every_command_is_in_one_section_of_the_help() -> None:
    shown = [name for names in SECTIONS.values() for name in names]
    assert sorted(shown) == sorted({path.partition(" ")[0] for path, _, _ in VERBS})


@pytest.mark.parametrize("command", ["study list", "run", "actuator status"])
def test_a_command_loads_no_solver_for_its_help(command: str) -> None:
    code = (
        f"import sys; from tuner.cli.app import main; main({[*command.split(), '--help']});"
        "print(*{n.split('.')[0] for n in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.strip().splitlines()[-1].split())
    assert not {"torch", "botorch", "sqlalchemy", "fastapi", "numpy"} & loaded


def test_a_completion_script_of_an_earlier_release_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_JOULETUNE_COMPLETE", "complete_bash")
    assert app.main([]) == 0
    assert capsys.readouterr() == ("", "")


def test_completion_takes_no_longer_than_a_help_text() -> None:
    code = (
        "import time; from tuner.cli.app import main; main(['completion', 'words', '--', 'study', 'sh']);"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    offered, seconds = done.stdout.split()
    assert offered == "show"
    assert float(seconds) <= 0.3


def test_the_program_shows_its_help_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main([]) == 0
    assert "Tune:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["study"], ["study", "show"], ["run", "--trials", "many"]]
)
def test_wrong_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong key"), 2),
        (NotFound("no such study"), 2),
        (Unauthorised("wrong token"), 2),
        (StoreError("no database"), 2),
        (LinkError("no tuner"), 2),
        (Conflict("it changed"), 1),
        (ActuationError("it did not take"), 1),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: TuningError,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object, **__: object) -> None:
        error.hint = "do this"
        raise error

    monkeypatch.setattr(app, "app", failing)
    assert app.main(["study", "list"]) == code
    assert capsys.readouterr().err == f"error: {error.message}; do this\n"
    assert app.main(["study", "list", "--json"]) == code
    problem = json.loads(capsys.readouterr().err)
    assert problem == {"code": error.code, "message": error.message, "hint": "do this"}


def test_a_missing_package_names_its_installation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")

    monkeypatch.setattr(app, "app", failing)
    assert app.main(["study", "list"]) == 1
    assert "sqlalchemy is not installed; " in capsys.readouterr().err


def test_our_own_missing_module_is_a_bug_and_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'tuner.nothing'", name="tuner.nothing")

    monkeypatch.setattr(app, "app", failing)
    with pytest.raises(ModuleNotFoundError):
        app.main(["study", "list"])


def test_a_full_disk_gives_a_one_line_error() -> None:
    code = "import sys; from tuner.cli.app import main; sys.exit(main(['study', 'list', '--help']))"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: the output is not complete: No space left on device; free space, or write elsewhere\n"
    )


def test_a_shell_gets_its_script_even_if_the_index_cannot_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert app.main(["completion", "bash"]) == 0
    out, err = capsys.readouterr()
    assert "complete -o default" in out
    assert "XDG_CACHE_HOME" in err


WITHOUT_JSON = {
    "tuner serve": "a service", "agent serve": "a service", "actuator serve": "a service",
    "actuator restore": "needs the standard library alone", "actuator detach": "prints nothing",
    "actuator leave-budget": "needs the standard library alone",
    "job begin": "writes a JSON file", "job end": "writes a JSON file",
    "actuator metrics": "Prometheus' text format", "db backup": "writes a file",
    "db restore": "replaces the database", "completion bash": "a script", "completion zsh": "a script",
    "completion fish": "a script", "completion words": "called by the scripts",
}  # fmt: skip


def test_every_verb_that_prints_data_prints_it_as_json_too() -> None:
    lacking = set()
    for path, module, _ in VERBS:
        verb = function(path.rpartition(" ")[2], module)
        parameters = inspect.signature(verb, eval_str=True).parameters.items()
        options = (
            (name, get_args(one.annotation)[1])
            for name, one in parameters
            if get_args(one.annotation)
        )
        if not any("--json" in option_names(name, option) for name, option in options):
            lacking.add(path)
    assert lacking == set(WITHOUT_JSON)


def test_a_folder_that_was_removed_under_a_shell_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert app.main(["study", "list"]) == 1
    said = "error: the current folder was removed; change to a folder that exists\n"
    assert capsys.readouterr().err == said


def test_an_argument_that_is_not_text_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["study", "list", "--db", "sqlite:///\udcff.db"]) == 2
    assert capsys.readouterr().err == "error: argument 4 is not valid UTF-8; write it in UTF-8\n"


@pytest.mark.parametrize("module", ["typer", "tuner.cli.run.run"])
def test_an_interrupt_during_an_import_is_one_line(module: str, tmp_path: Path) -> None:
    """Whatever the interrupted import makes of it: a compiled module raises an error of its own."""
    slow = f"""
import sys, pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
class Slow:
    def find_spec(self, name, *_):
        if name == {module!r}:
            pathlib.Path({str(tmp_path / "there")!r}).touch()
            try: time.sleep(60)
            except KeyboardInterrupt: raise SystemError("not initialised") from None
sys.meta_path.insert(0, Slow())
from tuner.cli import main
sys.exit(main())"""
    command = [sys.executable, "-c", slow, "run", "--help"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until((tmp_path / "there").exists)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == "error: interrupted\n"
    assert process.returncode == cli.CTRL_C


@pytest.mark.parametrize(
    ("wrapped", "also"),
    [
        (None, ""),
        (ImportError("not initialised"), ""),  # as importlib does
        (OSError("not restored"), "; then OSError: not restored"),
    ],
)
def test_an_interrupt_at_any_other_time_is_one_line(
    wrapped: Exception | None,
    also: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupted() -> int:
        try:
            raise KeyboardInterrupt
        finally:
            if wrapped:
                raise wrapped  # a clean-up that fails

    monkeypatch.setattr(app, "main", interrupted)
    assert (cli.main(), capfd.readouterr().err) == (cli.CTRL_C, f"error: interrupted{also}\n")


def test_a_command_is_loaded_in_any_thread() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert callable(threads.submit(function, "wait", "study.change").result())


def test_another_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "main", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main()
