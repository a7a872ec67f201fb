"""Whole studies on simulated boards, scored by the true values."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from agents.devices.catalogue import known_truth, open_device
from tests.bench.devices import boards
from tests.bench.devices.boards import Answer, BoardQuestion, answer, questions, rows
from tests.bench.devices.command import devices
from tuner.cli.run.results import score
from tuner.core import (
    Constraint,
    Done,
    InvalidInput,
    Objective,
    Past,
    Phase,
    Plan,
    Policy,
    Setting,
    Suggestion,
    Try,
)

ORIN = BoardQuestion(device="simulated:orin", policy="sobol", seed=0, slack=1.2, trials=3)
LIMIT = (Constraint.parse("latency_p99_ms <= 1.2x baseline"),)


class Scripted:
    """Tries a given list, then proposes its last setting."""

    def __init__(self, *script: Setting) -> None:
        self._script = script

    def suggest(self, past: Past) -> Suggestion:
        spent = sum(t.phase is Phase.TUNING for t in past.trials)
        if spent < len(self._script):
            return Try(self._script[spent], "scripted")
        return Done(Plan.single(self._script[-1]), "scripted")


def scripted(monkeypatch: pytest.MonkeyPatch, *script: Setting) -> Answer:
    def loaded(_: str) -> Policy:
        return Scripted(*script)

    monkeypatch.setattr(boards, "load_policy", loaded)
    return answer(replace(ORIN, policy="scripted", trials=len(script)))


def best_on_orin() -> Setting:
    truth, space = (
        known_truth("simulated:orin"),
        open_device("simulated:orin", seed=0, state_dir=None).space,
    )
    assert truth is not None
    return score(space, truth, Objective("energy_j"), LIMIT, space.default).oracle.setting


@pytest.mark.parametrize(("device", "settings"), [("tx2", 5005), ("orin", 1820)])
def test_the_boards_have_the_grids_of_the_paper(device: str, settings: int) -> None:
    space = open_device(f"simulated:{device}", seed=0, state_dir=None).space
    assert space.size == settings
    assert {k.name.split(".")[0] for k in space.knobs} == {"gpu", "cpu", "batch_size"}


def test_a_study_is_scored_by_the_true_values() -> None:
    scored = answer(ORIN)
    truth, space = (
        known_truth("simulated:orin"),
        open_device("simulated:orin", seed=0, state_dir=None).space,
    )
    assert truth is not None
    known = score(space, truth, Objective("energy_j"), LIMIT, space.default)
    most = known.oracle.metrics["energy_j"] / known.baseline.metrics["energy_j"]
    assert scored.possible == pytest.approx(1.0 - most)
    assert scored.saving <= scored.possible
    assert (scored.settings, scored.tried) == (1820, 3)
    again = answer(ORIN)
    assert replace(again, seconds=0.0) == replace(scored, seconds=0.0)
    assert answer(replace(ORIN, seed=1)).saving != scored.saving


def test_the_trial_that_came_near_the_oracle_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    best = best_on_orin()
    far = {**best, "batch_size": 1}
    scored = scripted(monkeypatch, far, best, far)
    assert scored.trials_to_near == 2
    # The last proposal saves nothing, so no other setting is compared.
    assert scored.saving == 0.0
    assert scripted(monkeypatch, far).trials_to_near is None


def test_settings_above_the_limit_are_counted_and_never_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = best_on_orin()
    slow = {**best, "gpu.clock_mhz": 204}
    scored = scripted(monkeypatch, slow, {**slow, "cpu.clock_mhz": 345.6})
    assert (scored.above, scored.tried) == (2, 2)
    assert scored.trials_to_near is None
    assert scored.saving == 0.0
    assert scored.held_above is False


def test_rows_average_over_seeds_and_keep_devices_and_policies_apart() -> None:
    one = Answer(
        question=ORIN, settings=1820, saving=0.1, possible=0.2, trials_to_near=None,
        tried=4, above=1, held_above=False, seconds=0.1,
    )  # fmt: skip
    two = replace(
        one,
        question=replace(ORIN, seed=1),
        saving=0.2,
        trials_to_near=6,
        tried=8,
        above=5,
        seconds=0.3,
    )
    other = replace(one, question=replace(ORIN, policy="polythrottle"))
    first, second = rows([one, other, two])
    assert (first.policy, second.policy) == ("sobol", "polythrottle")
    assert first.saving == pytest.approx(0.15)
    assert first.saving_stderr == pytest.approx(0.05)
    assert first.captured == pytest.approx(0.75)
    assert (first.near, first.studies, first.trials_to_near) == (1, 2, 6)
    assert first.violations == pytest.approx(0.5)
    assert first.seconds_per_suggestion == pytest.approx(0.2)
    assert second.trials_to_near is None


@pytest.mark.parametrize(
    ("device", "policy", "slack", "reason"),
    [
        ("simulated:orin", "oracle", 1.2, "no policy 'oracle'"),
        ("simulated:xavier", "sobol", 1.2, "no simulated device"),
        ("cpu", "sobol", 1.2, "true values"),
        ("simulated:orin", "sobol", 0.9, "breaks the limit itself"),
    ],
)
def test_an_impossible_run_is_refused_before_anything_runs(
    device: str, policy: str, slack: float, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        questions([device], [policy], 1, slack, 5)


def run(*options: str) -> str:
    app = typer.Typer()
    app.command()(devices)
    arguments = [
        "--devices",
        "simulated:orin",
        "--policies",
        "sobol",
        "--seeds",
        "1",
        "--trials",
        "2",
    ]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_marks_its_figures_as_simulated() -> None:
    text = run()
    assert "simulated:orin" in text
    assert "SIMULATED" in text
    assert "36 %" in text


def test_the_command_prints_rows_as_json() -> None:
    written = json.loads(run("--json"))
    assert [row["policy"] for row in written["rows"]] == ["sobol"]
    assert written["rows"][0]["origin"] == "simulated"
    assert len(written["studies"]) == 1


def test_the_command_times_suggestions_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the tuner: thread pools that compete for the cores make a fit many times slower."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    run()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "4", "what the operator has set stays"
