"""The result of one job of a run: what the study reports, and what its choice is truly worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agents.devices.catalogue import known_truth
from tuner.cli.output import Plain, plain
from tuner.cli.runfile import RunJob
from tuner.core import Constraint, Device, Objective
from tuner.presentation.outcomes import StudyOutcome
from tuner.presentation.true_score import Score, score
from tuner.wire import SettingView, TrialView

if TYPE_CHECKING:
    from tuner.verbs.table import Verbs
    from tuner.wire import StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult(StudyOutcome):
    """One study of a run at its end. `score` is None where only measuring can tell."""

    score: Score | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One job at its end: its study, and the control's beside it where there is one.

    `cannot` says what cannot be set or measured on the device, and why.
    """

    job: RunJob
    board: str
    cannot: Mapping[str, str]
    main: StudyResult
    control: StudyResult | None = None


def outcome(api: Verbs[StudyView], study: str, job: RunJob, device: Device) -> StudyResult:
    """Return how a study ended: what it holds, or held until it was stopped."""
    report = api.report(study)
    made = StudyResult.of(report, api.revisions(study), api.trials(study))
    truth = known_truth(job.device)
    if truth is None or not report.baseline.metrics:
        return made
    constraints = tuple(Constraint.parse(text) for text in report.study.constraints)
    objective = Objective.parse(report.study.objective)
    worth = score(device.space, truth, objective, constraints, made.held)
    return replace(made, score=worth)


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
            "why": main.why,
            "proposed": main.proposed,
        },
        "won": main.won,
        "plan": plain(view.plan),
        "alternating": main.report.alternating,
        **_compared(main),
        "truth": None if worth is None else _truth(worth),
        "captured": None if worth is None else plain(worth.captured),
        "feasible": None if worth is None else worth.feasible,
        "limit_kept": main.report.limit_kept,
        "trials": [trial_object(trial) for trial in main.trials],
        "violations": view.violations.broken,
        "violation_rate": view.violations.rate,
        "seconds_above_limit": view.violations.seconds,
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


def _compared(main: StudyResult) -> dict[str, Plain]:
    """Return baseline, best and the saving between them, as they showed against each other."""
    gain = main.report.saving
    return {
        "baseline": setting_object(main.report.baseline),
        "best": None if main.report.best is None else setting_object(main.report.best),
        "baseline_shift": plain(main.report.baseline_shift),
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


def _control(control: StudyResult) -> dict[str, Plain]:
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
