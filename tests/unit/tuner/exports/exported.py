"""Studies to export."""

from __future__ import annotations

from tests.builders import applied
from tests.unit.tuner.cli import worlds
from tuner.exports.mlflow import ExportedStudy
from tuner.service.operations import Operations
from tuner.wire import Poll


def exported(verbs: Operations, study: str) -> ExportedStudy:
    return ExportedStudy(report=verbs.report(study), trials=tuple(verbs.trials(study)))


def begun() -> tuple[Operations, str]:
    """Return a study without measurements whose first trial is running."""
    verbs = worlds.operations()
    study = worlds.created(verbs)
    verbs.loop.order("sim", Poll(agent="host", applied=applied()))
    return verbs, study
