"""The result of one job of a run: the study's report, and the choice by the true values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agents.devices.catalogue import Truth, known_truth, oracle, true_score
from tuner.cli.output import Plain, plain
from tuner.cli.runfile import RunJob
from tuner.cli.study import report as reporting
from tuner.core import Constraint, Device, Estimate, Limit, Objective, Setting, Space, limits
from tuner.presentation.standing import StudyOutcome
from tuner.verbs.table import Verbs
from tuner.wire import SettingView, StudyView


@dataclass(frozen=True, slots=True)
class TruePoint:
    """A setting and its true metrics, without noise."""

    setting: Setting
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The true value of a chosen setting.

    `captured` is its share of the best possible saving: (baseline − chosen) / (baseline − oracle), by
    true values; None if no saving is possible. `saving_percent` is the true saving in %. `feasible` and
    `baseline_feasible` are whether the chosen setting and the baseline truly keep every limit; the
    limits are computed from the true baseline.
    """

    baseline: TruePoint
    best: TruePoint
    oracle: TruePoint
    captured: float | None
    saving_percent: float
    feasible: bool
    baseline_feasible: bool


def score(
    space: Space,
    truth: Truth,
    objective: Objective,
    constraints: tuple[Constraint, ...],
    chosen: Setting,
) -> Score:
    """Compare a chosen setting with the baseline and with the best of the whole space."""
    base = truth(space.default)
    in_force = true_limits(constraints, base)
    optimum = oracle(space, truth, objective, in_force) or space.default
    best = truth(chosen)
    at_base, at_best, at_optimum = (true_score(objective, x) for x in (base, best, truth(optimum)))
    gain = objective.sign * (at_base - at_best)
    possible = objective.sign * (at_base - at_optimum)
    return Score(
        baseline=_point(space.default, base),
        best=_point(chosen, best),
        oracle=_point(optimum, truth(optimum)),
        captured=gain / possible if possible > 0.0 else None,
        saving_percent=100.0 * gain / at_base if at_base else 0.0,
        feasible=all(limit.holds(best[limit.metric]) for limit in in_force),
        baseline_feasible=all(limit.holds(base[limit.metric]) for limit in in_force),
    )


def true_limits(
    constraints: tuple[Constraint, ...], baseline: Mapping[str, float]
) -> tuple[Limit, ...]:
    """Return the limits of the constraints, computed from the true baseline."""
    estimates = {name: Estimate(value) for name, value in baseline.items()}
    return limits(constraints, estimates) or ()


def _point(setting: Setting, metrics: Mapping[str, float]) -> TruePoint:
    """Return copies of a setting and its true metrics."""
    return TruePoint(dict(setting), dict(metrics))


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
        **reporting.document(result.main),
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
        "saving_percent": reporting.saving_percent(control),
        **_worth(control.score),
    }
