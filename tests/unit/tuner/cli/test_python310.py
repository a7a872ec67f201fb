"""On Python 3.10, as in JetPack 6, agents run, and the tuner does not."""

from __future__ import annotations

import sys

import pytest

from tuner.cli import app


@pytest.mark.parametrize("command", [["tuner", "serve"], ["run", "--device", "jetson"]])
def test_a_tuner_on_python_310_is_refused_by_name(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    assert app.main(command) == 2
    message = capsys.readouterr().err
    assert f"jouletune {command[0]} needs Python 3.11" in message and "3.10" in message
    assert "another host" in message


@pytest.mark.parametrize("command", [["agent", "serve"], ["doctor"], ["--help"]])
def test_every_other_command_runs_on_python_310(command: list[str]) -> None:
    assert app.too_old(command, (3, 10)) is None


def test_a_newer_python_runs_every_command() -> None:
    assert app.too_old(["run"], (3, 11)) is None
