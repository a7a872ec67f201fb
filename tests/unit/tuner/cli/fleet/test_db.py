"""Upkeep from the command line: only of the named database, never of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from db import open_store
from tuner.cli.app import main

URL = "sqlite:///own.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("JOULETUNE_DB", "JOULETUNE_TUNER", "JOULETUNE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    open_store(URL).close()


COMMANDS = pytest.mark.parametrize(
    "command", [["backup", "b.db"], ["check"], ["prune", "--yes"]], ids=lambda command: command[0]
)


@COMMANDS
def test_a_named_tuner_is_not_a_database(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOULETUNE_TUNER", "http://127.0.0.1:9")
    assert main(["db", *command]) == 2
    assert "--db URL" in capsys.readouterr().err
    assert not Path("b.db").exists()


@COMMANDS
def test_without_any_the_next_step_is_printed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", *command]) == 2
    message = capsys.readouterr().err
    assert "--db URL" in message and "--tuner" not in message


@COMMANDS
def test_watched_studies_are_named(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", *command, "--db", URL]) == 0
    assert URL in capsys.readouterr().out
