"""The fleet in a terminal: its sums and devices; what needs an operator, and by which command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from db import open_store
from tests.builders import START, setting
from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.cli.fleet.fleet import device_row, sums
from tuner.core import Estimate, Level, Outcome, PeriodSaving, Phase, TrialState
from tuner.wire import Change, FleetRow, FleetView, Health, Savings


def row(name: str, health: Health = Health.SAFE, **about: Any) -> FleetRow:  # noqa: ANN401
    return FleetRow(
        device=name, board="A100", workload="inference", health=health, default=setting(),
        last_seen=START, level=Level.ORIGINAL, energy_origin="measured", **about,
    )  # fmt: skip


def test_the_sums_count_by_status_and_a_device_shows_its_saving() -> None:
    held = row(
        "b", Health.HOLDING, study="s1", phase=Phase.HOLDING, setting=setting(600),
        saving=Estimate(0.4, 0.01), saved_j=1_000.0, saved_stderr_j=10.0,
    )  # fmt: skip
    period = PeriodSaving("in all", START, 9, 60.0, 1_000.0, 10.0, 4_000.0, 1.5)
    saved = Savings(period=period, origin="simulated", currency="EUR")
    health = {"safe": 1, "holding": 1, "offline": 1, "limit not met": 1}
    view = FleetView(rows=(held,), health=health, stopped=False, studies=1, savings=(saved,))
    counts, cells = "  ".join(sums(view)), device_row(held)
    assert "1 limit not met  1 offline  1 holding  1 safe" in counts
    assert "saved in all since 2026-01-01: 1.000 ± 0.010 kJ" in counts
    assert "1.5 EUR, 25.0 % of the baseline), simulated" in counts
    for text in ("holding", "s1", "gpu.clock_mhz=600", "40.0 ± 1.0 %", "1.000 ± 0.010 kJ"):
        assert text in "  ".join(cells)


def test_pending_computations_are_reported() -> None:
    view = FleetView(rows=(), health={}, stopped=False, studies=10, pending=3)
    assert "7 of 10 studies done" in "".join(sums(view))
    assert "computing" not in "".join(sums(view.model_copy(update={"pending": 0})))


def test_the_sums_of_a_large_fleet_fit_the_terminal_and_lose_nothing() -> None:
    health = {str(word): 40 + n for n, word in enumerate(Health)}
    view = FleetView(rows=(), health=health, stopped=False, studies=1, pending=1)
    lines = sums(view, 80)
    assert max(map(len, lines)) <= 80
    assert "  ".join(lines) == "".join(sums(view))


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


def test_waiting_for_a_study_that_could_measure_nothing_fails(tmp_path: Path, ask: Ask) -> None:
    made = worlds.database(
        tmp_path, lambda _: Outcome(state=TrialState.CONTAMINATED, reason="load")
    )
    for typed in ([], ["--for", "holding"]):
        code, _, err = ask("study", "wait", made, *typed)
        assert code == 1 and "nothing could be tuned on sim: " in err and "trial list" in err
