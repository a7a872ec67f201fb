"""The fleet in a terminal: sums, problems first, and as many devices as fit."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tests.builders import START, setting
from tuner.cli.app import main
from tuner.cli.fleet.top import pictured, sums
from tuner.core import Estimate, Level, PeriodSaving, Phase
from tuner.wire import FleetRow, FleetView, Health, Savings


def row(name: str, health: Health = Health.SAFE, **about: Any) -> FleetRow:  # noqa: ANN401
    return FleetRow(
        device=name, board="A100", workload="inference", health=health, default=setting(),
        last_seen=START, level=Level.ORIGINAL, energy_origin="measured", **about,
    )  # fmt: skip


def shown(*rows: FleetRow, height: int = 40, saved: Savings | None = None) -> list[str]:
    words = [str(r.health) for r in rows]
    view = FleetView(
        rows=rows,
        health={w: words.count(w) for w in words},
        stopped=False,
        studies=1,
        savings=(saved,) if saved else (),
    )
    screen = Console(file=io.StringIO(), width=160, markup=False, highlight=False)
    screen.print(pictured(view, height, 160))
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines() if line.strip()]


def test_faults_come_first_and_each_device_shows_its_saving() -> None:
    held = row(
        "b", Health.HOLDING, study="s1", phase=Phase.HOLDING, setting=setting(600),
        saving=Estimate(0.4, 0.01), saved_j=1_000.0, saved_stderr_j=10.0,
    )  # fmt: skip
    period = PeriodSaving("in all", START, 9, 60.0, 1_000.0, 10.0, 4_000.0, 1.5)
    saved = Savings(period=period, origin="simulated", currency="EUR")
    lines = shown(
        row("a"), held, row("c", Health.OFFLINE), row("d", Health.LIMIT_NOT_MET), saved=saved
    )
    assert lines[0].startswith("4 devices  1 limit not met  1 offline  1 holding  1 safe")
    assert lines[1].startswith("saved in all since 2026-01-01: 1.000 ± 0.010 kJ")
    assert "1.5 EUR, 25.0 % of the baseline), simulated" in lines[1]
    assert [line.split()[0] for line in lines[3:]] == ["d", "c", "b", "a"]
    (told,) = [line for line in lines if line.split()[0] == "b"]
    for text in ("holding", "s1", "gpu.clock_mhz=600", "40.0 ± 1.0 %", "1.000 ± 0.010 kJ"):
        assert text in told


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


def test_above_the_limit_the_number_of_omitted_devices_is_given() -> None:
    lines = shown(*(row(f"gpu{n}") for n in range(10)), height=10)
    assert lines[-1] == "and 4 more"


def test_the_command_needs_a_tuner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JOULETUNE_TUNER", raising=False)
    monkeypatch.setenv("JOULETUNE_DB", "sqlite:///nothing.sqlite")
    assert main(["top"]) != 0
    assert "--tuner" in capsys.readouterr().err
