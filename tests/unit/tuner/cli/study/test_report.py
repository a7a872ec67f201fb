"""`jouletune report`: which studies, in which form, and whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from db import open_store
from tests.builders import START
from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.wire import StudyReport


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    made = worlds.database(tmp_path)
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return made


def test_with_json_the_command_prints_the_report_of_a_run(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", study, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["study"]["id"] == study and answer["won"] is True
    assert StudyReport.model_fields.keys() - {"protocol"} <= answer.keys()
    assert {"saving_percent", "why", "proposed", "trials"} <= answer.keys()
    assert main(["report", "--format", "json", "--output", "week.json"]) == 0
    week = json.loads((tmp_path / "week.json").read_text())
    names = [p["period"] for p in answer["bill"].pop("periods")]
    assert names == ["last 24 h", "last 7 d", "last 30 d", "this hold"]
    assert [p["period"][:5] for p in week["bill"].pop("periods")] == ["since"]
    assert week == answer


def test_without_a_study_all_recently_active_ones_are_reported(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The builders' clock is in January, so a study that stops then ended long ago."""
    assert main(["report"]) == 0
    assert f"Study {study}" in capsys.readouterr().out
    store = open_store(f"sqlite:///{tmp_path / worlds.FILE}")
    verbs = worlds.operations(store)
    worlds.retire(verbs)
    store.close()
    assert main(["report"]) == 0
    assert "0 studies" in capsys.readouterr().out
    assert main(["report", "--since", "2025-12-31"]) == 0
    assert f"Study {study}" in capsys.readouterr().out


def test_a_group_is_listed_and_reported(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"sqlite:///{tmp_path / worlds.FILE}")
    store.studies.revise(replace(store.studies.get(study), group="lab"), "ann", "", START)
    store.close()
    assert main(["report", "--group", "lab"]) == 0
    assert "Studies of group lab since" in capsys.readouterr().out
    for verb in (["study", "list"], ["report"], ["history"]):
        assert main([*verb, "--group", "lab", "--json"]) == 0
        assert study in capsys.readouterr().out
    assert main(["study", "list", "-o", "wide"]) == 0
    assert "  lab  " in capsys.readouterr().out
    assert main(["study", "list", "--group", "hall"]) == 2
    assert "groups: lab" in capsys.readouterr().err


def test_markdown_has_its_pictures_beside_it(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["report", study, "--format", "md", "--output", "week.md"]) == 0
    assert "1 study in week.md, 1 picture beside it" in capsys.readouterr().err
    assert f"(week-{study}.svg)" in (tmp_path / "week.md").read_text()
    assert (tmp_path / f"week-{study}.svg").read_text().startswith("<?xml")
    assert main(["report", study, "--format", "md"]) == 0
    out, err = capsys.readouterr()
    assert ".svg" not in out and "no pictures without --output" in err


def test_a_page_is_one_file(study: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    before = {path.name for path in tmp_path.iterdir()}
    assert main(["report", study, "--format", "html", "--output", "week.html"]) == 0
    assert {path.name for path in tmp_path.iterdir()} - before == {"week.html"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("STUDY", "--format", "pdf"), "pdf"),
        (("STUDY", "--format", "md", "--output", "missing/week.md"), "no such folder"),
        (("STUDY", "--format", "html", "--output", "missing/week.html"), "no such folder"),
    ],
)
def test_an_impossible_request_gives_a_one_line_error_and_leaves_nothing(
    arguments: tuple[str, ...],
    message: str,
    study: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    given = [study if word == "STUDY" else word for word in arguments]
    assert main(["report", *given]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
    assert {path.name for path in tmp_path.iterdir()} == before


def test_where_the_document_cannot_be_written_no_picture_is_left(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "week.md").mkdir()
    assert main(["report", study, "--format", "md", "--output", "week.md"]) == 2
    assert "cannot write week.md" in capsys.readouterr().err
    assert list(tmp_path.glob("*.svg")) == []
