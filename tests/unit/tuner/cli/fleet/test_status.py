"""`jouletune status`: devices and studies that need an operator, with the command; one device in full."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from db import open_store
from tests.errors import has_a_next_step
from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.wire import Change

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def answer(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return (code, *capsys.readouterr())

    return answer


def needs(ask: Ask) -> dict[str, tuple[str, str]]:
    code, out, _ = ask("status", "--json")
    assert code == 0
    return {row["name"]: (row["status"], row["next_step"]) for row in json.loads(out)}


def test_each_thing_that_needs_somebody_has_its_command(tmp_path: Path, ask: Ask) -> None:
    store = open_store(f"sqlite:///{tmp_path / worlds.FILE}")
    verbs = worlds.operations(store)
    study = worlds.proposed(verbs)
    assert needs(ask)["sim"] == ("offline", "jouletune device show sim")
    assert needs(ask)[study] == (
        "awaiting approval, offline",
        f"jouletune study approve {study}",
    )
    verbs.pause(study, Change(who="ann", why="lunch"))
    assert needs(ask)[study][1] == f"jouletune study resume {study}"
    verbs.stop_all(Change(who="ann", why="smoke"))
    assert needs(ask)["all devices"] == ("stopped", "jouletune stop-all --lift")
    store.close()


def test_commands_have_the_options_that_lead_to_the_same_place(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = worlds.database(tmp_path)
    monkeypatch.delenv("JOULETUNE_DB")
    place = ("--db", f"sqlite:///{worlds.FILE}")
    options = " ".join(place)
    assert f"`jouletune device show sim {options}`" in ask("status", *place)[1]
    assert f"`jouletune study list {options}`" in ask("study", "show", "nothing", *place)[2]
    assert f"`jouletune study resume {made} {options}`" in ask("study", "pause", made, *place)[1]


def test_a_device_is_shown_with_its_applied_setting_and_the_time_since(
    tmp_path: Path, ask: Ask
) -> None:
    made = worlds.database(tmp_path)
    code, out, _ = ask("device", "show", "si")
    assert code == 0
    for part in ("device      sim", "since       2026-01-01 12:00:00Z", "gpu.clock_mhz: 400", made):
        assert part in out
    assert json.loads(ask("device", "show", "sim", "--json")[1])["device"]["device"]["id"] == "sim"
    code, _, err = ask("device", "show", "nobody")
    assert code == 2 and has_a_next_step(err)


def test_a_trial_is_shown_by_its_number(tmp_path: Path, ask: Ask) -> None:
    made = worlds.database(tmp_path)
    for typed in ((made, "3"), (f"{made}/3",)):
        code, out, _ = ask("trial", "show", *typed)
        assert code == 0 and "gpu.clock_mhz=800" in out and "result      feasible" in out
    assert ask("trial", "show", made, "99")[0] == 2
    assert ask("trial", "show", made)[0] == 2


def test_waiting_ends_at_the_status_at_a_dead_end_or_in_time(tmp_path: Path, ask: Ask) -> None:
    made = worlds.database(tmp_path)
    assert ask("study", "wait", made)[0] == 0
    assert ask("study", "wait", made, "--for", "holding", "--timeout", "1s")[0] == 0
    code, out, _ = ask("study", "wait", made, "--for", "tuning", "--timeout", "0s")
    assert code == 124 and "still holding" in out and "`jouletune study show" in out
    assert ask("study", "wait", made, "--for", "happy")[0] == 2
    assert ask("study", "wait", made, "--timeout", "soon")[0] == 2
    ask("study", "stop", made, "--yes")
    code, out, _ = ask("study", "wait", made, "--for", "holding")
    assert code == 1 and "it is stopped" in out
