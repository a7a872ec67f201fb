"""The result of one job of a run: the study's report, and the choice by the true values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agents.devices.catalogue import known_truth
from tuner.cli.output import Plain, plain
from tuner.cli.runfile import RunJob
from tuner.cli.study import printed
from tuner.core import Constraint, Device, Objective
from tuner.presentation.outcomes import StudyOutcome
from tuner.presentation.true_score import Score, score
from tuner.verbs.table import Verbs
from tuner.wire import SettingView, StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult(StudyOutcome):
    """One study of a run at its end. `score` is None if the device has no true values."""

    front: tuple[SettingView, ...] = ()
    score: Score | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One job at its end: its study, and the control study if there is one.

    `cannot` has the device's unavailable knobs and metrics, each with the reason.
    """

    job: RunJob
    board: str
    cannot: Mapping[str, str]
    main: StudyResult
    control: StudyResult | None = None


def outcome(api: Verbs[StudyView], study: str, job: RunJob, device: Device) -> StudyResult:
    """Return the result of a study that is settled."""
    report = api.report(study)
    study_result = StudyResult.of(report, api.revisions(study), api.trials(study))
    study_result = replace(study_result, front=tuple(api.pareto(study)))
    truth = known_truth(job.device)
    if truth is None or not report.baseline.metrics:
        return study_result
    constraints = tuple(Constraint.parse(text) for text in report.study.constraints)
    objective = Objective.parse(report.study.objective)
    worth = score(device.space, truth, objective, constraints, study_result.held)
    return replace(study_result, score=worth)


def document(result: Result) -> dict[str, Plain]:
    """Return a result as `jouletune run --json` prints it: the fields of `report --json`, and more."""
    worth = result.main.score
    return {
        **printed.document(result.main),
        "board": result.board,
        "truth": None if worth is None else _truth(worth),
        **_worth(worth),
        "cannot": plain(result.cannot),
        "control": None if result.control is None else _control(result.control),
    }


def _worth(worth: Score | None) -> dict[str, Plain]:
    """Return the captured saving and the feasibility of a choice by the device's true values."""
    return {
        "captured": None if worth is None else plain(worth.captured),
        "feasible": None if worth is None else worth.feasible,
    }


def _truth(worth: Score) -> dict[str, Plain]:
    """Return the true values of baseline, choice and oracle."""
    points: Mapping[str, object] = {
        "baseline": worth.baseline,
        "best": worth.best,
        "oracle": worth.oracle,
        "saving_percent": worth.saving_percent,
    }
    return {name: plain(value) for name, value in points.items()}


def _control(control: StudyResult) -> dict[str, Plain]:
    """Return the control study's result."""
    return {
        "study": control.report.study.id,
        "policy": control.report.study.policy,
        "trials": len(control.trials),
        "best": plain(control.report.best),
        "saving_percent": printed.saving_percent(control),
        **_worth(control.score),
    }
