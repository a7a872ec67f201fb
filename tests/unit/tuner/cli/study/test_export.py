"""`jouletune export`: into real stores, repeatable without harm, and a one-line error on failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.tuner.cli import worlds
from tuner.cli.app import main


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    made = worlds.database(tmp_path)
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("MLFLOW_LOGGING_LEVEL", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "0" if name.endswith("RETRIES") else "WARNING")
    monkeypatch.chdir(tmp_path)
    return made


def test_studies_are_exported_once_however_often(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow")
    command = ("mlflow", "--tracking-uri", "sqlite:///mlflow.db")
    for more, message in (
        ((study[:4],), "1 study in sqlite:///"),
        ((), "0 trials added, 0 changed, 8 as before"),
        (("--since", "2030-01-01"), "8 as before"),
    ):
        assert main(["export", *command, *more]) == 0
        assert message in capsys.readouterr().out
    assert main(["export", *command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    trials = {"added": 0, "changed": 0, "known": 8}
    assert answer == {"studies": 1, "trials": trials, "left_out": []}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("mlflow",), "no MLflow is given"),
        (("mlflow", "--tracking-uri", "nonsense:"), "does not support the address"),
        (("mlflow", "--tracking-uri", "http://127.0.0.1:9"), "MLflow at http://127.0.0.1:9"),
        (("mlflow", "--tracking-uri", "postgresql://ann:pw@h/d"), "can be read by every user"),
        (("mlflow", "none", "--tracking-uri", "sqlite:///new.db"), "none"),
        (("mlflow", "STUDY", "--since", "2d", "--tracking-uri", "sqlite:///new.db"), "both STUDY"),
        (("mlflow", "--since", "soon", "--tracking-uri", "sqlite:///new.db"), "--since cannot be"),
    ],
)
def test_an_impossible_export_gives_a_one_line_error_and_creates_nothing(
    command: tuple[str, ...],
    message: str,
    study: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(command[0])
    before = {path.name for path in tmp_path.iterdir()}
    given = [study if word == "STUDY" else word for word in command]
    assert main(["export", *given]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
    assert {path.name for path in tmp_path.iterdir()} == before
