"""The result of one job of a run: what the study reports, and what its choice is truly worth."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.devices import known_truth
from tuner.cli.jobs import parsed_objective
from tuner.cli.output import Plain, plain
from tuner.cli.runfile import Job
from tuner.cli.score import Score, score
from tuner.core import Constraint, Device, Setting, setting_key
from tuner.wire import SettingView, StudyReport, TrialView

if TYPE_CHECKING:
    from tuner.cli.desk import Desk

FOLDER = "results"


class Outcome(BaseModel):
    """One study at its end. `score` is None where only measuring can tell."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    report: StudyReport
    trials: tuple[TrialView, ...]
    score: Score | None = None

    @property
    def held(self) -> Setting:
        """The setting the study ended with: the confirmed one, else the baseline."""
        plan = self.report.study.plan
        return plan.rows[-1].setting if plan is not None else self.report.study.baseline.setting

    @property
    def won(self) -> bool:
        """Whether a setting other than the baseline was confirmed and is held."""
        return setting_key(self.held) != setting_key(self.report.study.baseline.setting)


class Result(BaseModel):
    """One job at its end: its study, and the control's beside it where there is one.

    `cannot` says what cannot be set or measured on the device, and why.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")

    job: Job
    board: str
    cannot: dict[str, str]
    main: Outcome
    control: Outcome | None = None


def outcome(desk: Desk, study: str, job: Job, device: Device) -> Outcome:
    """Return how a study ended. Ask before it is stopped: a stopped study holds nothing."""
    report = desk.report(study)
    made = Outcome(report=report, trials=tuple(desk.trials(study)))
    truth = known_truth(job.device)
    if truth is None:
        return made
    constraints = tuple(Constraint.parse(text) for text in report.study.constraints)
    objective = parsed_objective(report.study.objective)
    worth = score(device.space, truth, objective, constraints, made.held)
    return made.model_copy(update={"score": worth})


def save(state_dir: Path, result: Result) -> None:
    """Keep a result in the state folder, under its study's id."""
    folder = state_dir / FOLDER
    folder.mkdir(exist_ok=True)
    whole = folder / f".{result.job.study}.{os.getpid()}"
    whole.write_text(result.model_dump_json(), "utf-8")
    whole.replace(folder / f"{result.job.study}.json")


def load(state_dir: Path, study: str) -> Result | None:
    """Return a kept result, None where there is none that can be read."""
    try:
        text = (state_dir / FOLDER / f"{study}.json").read_bytes()
        return Result.model_validate_json(text)
    except (FileNotFoundError, ValidationError):
        return None


def document(result: Result) -> dict[str, Plain]:
    """Return a result as `jouletune run --json` prints it."""
    main, view, bill = result.main, result.main.report.study, result.main.report.bill
    worth = main.score
    return {
        "study": {
            "id": view.id,
            "device": view.devices[0],
            "board": result.board,
            "workload": view.workload,
            "policy": view.policy,
            "seed": view.seed,
            "objective": view.objective,
            "constraints": plain(view.constraints),
            "limits": plain(view.limits),
            "settings": view.settings,
            "phase": str(view.phase),
            "phase_why": view.phase_why,
        },
        "won": main.won,
        "alternating": main.report.alternating,
        **_compared(main),
        "truth": None if worth is None else _truth(worth),
        "captured": None if worth is None else plain(worth.captured),
        "feasible": None if worth is None else worth.feasible,
        "limit_kept": main.report.limit_kept,
        "trials": [trial_object(trial) for trial in main.trials],
        "violations": main.report.violations,
        "bill": plain(bill),
        "origins": plain(main.report.origins),
        "cannot": plain(result.cannot),
        "control": None if result.control is None else _control(result.control),
    }


def trial_object(trial: TrialView) -> dict[str, Plain]:
    """Return a trial as JSON has it."""
    made = plain(trial)
    assert isinstance(made, dict)
    return {name: value for name, value in made.items() if name != "study"}


def _compared(main: Outcome) -> dict[str, Plain]:
    """Return baseline, best and the saving between them, as they showed against each other."""
    gain = main.report.saving
    return {
        "baseline": setting_object(main.report.baseline),
        "best": None if main.report.best is None else setting_object(main.report.best),
        "saving_percent": None if gain is None else 100.0 * gain.mean,
        "saving_stderr_percent": None if gain is None else 100.0 * gain.stderr,
    }


def setting_object(found: SettingView) -> dict[str, Plain]:
    """Return a setting with its metrics as JSON has them."""
    return {
        "setting": plain(found.setting),
        "metrics": plain(found.metrics),
        "verdict": plain(found.verdict),
        "windows": found.windows,
    }


def _truth(worth: Score) -> dict[str, Plain]:
    points: Mapping[str, object] = {
        "baseline": worth.baseline,
        "best": worth.best,
        "oracle": worth.oracle,
        "saving_percent": worth.saving_percent,
    }
    return {name: plain(value) for name, value in points.items()}


def _control(control: Outcome) -> dict[str, Plain]:
    worth = control.score
    compared = _compared(control)
    return {
        "study": control.report.study.id,
        "policy": control.report.study.policy,
        "trials": len(control.trials),
        "best": compared["best"],
        "saving_percent": compared["saving_percent"],
        "captured": None if worth is None else plain(worth.captured),
        "feasible": None if worth is None else worth.feasible,
    }
