"""Export studies to MLflow: one run per study, with a nested run per trial."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from posixpath import normpath
from typing import TYPE_CHECKING

from tuner.core import ConfigError, Phase, StoreError, TrialState
from tuner.presentation.texts import changed_fields
from tuner.wire import StudyReport, StudyView, TrialView

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

STUDY = "jouletune.study"
TRIAL = "jouletune.trial"
"""The names of the tags with the ids of a study and a trial, by which an export finds existing runs."""
EXPERIMENT = "jouletune"
LONGEST_TAG = 5000
LONGEST_PARAM = 6000
"""MLflow's limits on the text of a tag and of a parameter, in characters."""
LONGEST_KEY = 250
REFUSED = re.compile(r"[^\w .:/-]")
"""A character that names of parameters, metrics and tags cannot have (`mlflow.utils.validation`)."""
PAGE = 1000
CAUSE = " (Caused by"
"""urllib3 repeats a cause in its message after these words."""

ENDED = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.ABORTED: "KILLED",
}
"""MLflow's status of a run by the trial's final state; FAILED for any other state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedStudy:
    """A study's report and its trials."""

    report: StudyReport
    trials: tuple[TrialView, ...]

    @property
    def view(self) -> StudyView:
        """The present state of the study."""
        return self.report.study

    @property
    def ended(self) -> Iterator[TrialView]:
        """The trials that have ended; a later export adds the others."""
        return (trial for trial in self.trials if trial.state.final)


ExportCount = Counter[str]
"""The numbers of trials that an export `added`, `changed`, or left as they were (`known`)."""


class MlflowExport:
    """Writes studies into an experiment. Tags with the ids of study and trial identify existing runs.

    Raises:
        ConfigError: MLflow is not installed, or does not support the address.
    """

    def __init__(self, tracking_uri: str, experiment: str = EXPERIMENT) -> None:
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error.name} is not installed", hint="pip install 'jouletune[mlflow]'"
            ) from None
        self._uri, self._name = shown_url(tracking_uri), experiment
        self._refusal = MlflowException
        try:
            self._client: MlflowClient = MlflowClient(tracking_uri=tracking_uri)
        except MlflowException as error:
            raise ConfigError(
                f"MLflow does not support the address {self._uri!r}: {first_line(error).split(CAUSE)[0]}",
                hint="give --tracking-uri like http://127.0.0.1:5000 or sqlite:///mlflow.db",
            ) from None

    def write(self, study: ExportedStudy) -> ExportCount:
        """Write a study and its ended trials; rewrite existing data only if it differs.

        An export that was interrupted at any point may be repeated; the result is the same.

        Raises:
            StoreError: MLflow does not answer, or refuses the request.
        """
        try:
            return self._write(study)
        except self._refusal as error:
            raise StoreError(
                f"MLflow at {self._uri} refused: {first_line(error).split(CAUSE)[0]}",
                hint="correct this and export again; it is safe to re-run",
            ) from None

    def _write(self, study: ExportedStudy) -> ExportCount:
        """Write the study's run and the runs of its ended trials; return the number of changes."""
        experiment = self._experiment()
        runs = {
            run.data.tags.get(TRIAL, ""): run
            for run in self._runs(experiment, study.view.id)
            if not self._drop_unfinished(run)
        }
        parent = runs.pop("", None) or self._create_parent(experiment, study)
        self._renew_parent(parent, study)
        count = ExportCount()
        for trial in study.ended:
            run = runs.get(trial_id(trial))
            if run is None:
                self._add(experiment, parent.info.run_id, trial)
                count["added"] += 1
            elif self._retag(run, circumstances(trial)):
                count["changed"] += 1
            else:
                count["known"] += 1
        return count

    def _experiment(self) -> str:
        """Return the id of the experiment; create it, or restore it if it was deleted."""
        experiment = self._client.get_experiment_by_name(self._name)
        if experiment is None:
            return self._client.create_experiment(self._name)
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _runs(self, experiment: str, study: str) -> Iterator[Run]:
        """Yield all runs of a study in the experiment, page by page."""
        token = None
        while True:
            page = self._client.search_runs(
                [experiment], f"tags.`{STUDY}` = '{study}'", max_results=PAGE, page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _drop_unfinished(self, run: Run) -> bool:
        """Remove a trial's run if an interrupted export left it unfinished; return whether it did."""
        if TRIAL not in run.data.tags or run.info.status != "RUNNING":
            return False
        self._client.delete_run(run.info.run_id)
        return True

    def _create_parent(self, experiment: str, study: ExportedStudy) -> Run:
        """Create the run of a study, which is the parent of its trials' runs."""
        view = study.view
        return self._client.create_run(
            experiment,
            start_time=_ms(view.created_at),
            tags={STUDY: view.id},
            run_name=f"{view.workload} on {', '.join(view.devices)} ({view.id})"[:LONGEST_TAG],
        )

    def _renew_parent(self, run: Run, study: ExportedStudy) -> None:
        """Write those parameters, metrics and tags of a study that differ from its run's."""
        from mlflow.entities import Metric, Param

        view, id = study.view, run.info.run_id
        about = changed_fields(view) | {
            "policy": view.policy,
            "seed": str(view.seed),
            "objective": view.objective,
            "devices": ", ".join(view.devices),
            "workload": view.workload,
            "settings": str(view.settings),
        }
        params = [
            Param(name, text[:LONGEST_PARAM])
            for name, text in about.items()
            if name not in run.data.params
        ]
        at = max((t.ended_at or t.started_at for t in study.ended), default=view.created_at)
        metrics = [
            Metric(name, value, _ms(at), 0)
            for name, value in _summary(study.report).items()
            if run.data.metrics.get(name) != value
        ]
        self._client.log_batch(id, metrics=metrics, params=params)
        tags = {
            "jouletune.phase": str(view.phase),
            "jouletune.why": view.phase_why,
            "jouletune.constraints": "; ".join(view.constraints),
        }
        self._retag(run, tags)
        status = "FINISHED" if view.phase in (Phase.HOLDING, Phase.STOPPED) else "RUNNING"
        if run.info.status == status:
            return
        if status == "RUNNING":
            self._client.update_run(id, status=status)
        else:
            self._client.set_terminated(id, status, end_time=_ms(at))

    def _add(self, experiment: str, parent: str, trial: TrialView) -> None:
        """Add a trial's run. Its status is set last, so that an unfinished export is recognised."""
        from mlflow.entities import Metric, Param

        tags = {"mlflow.parentRunId": parent, STUDY: trial.study, TRIAL: trial_id(trial)}
        run = self._client.create_run(
            experiment,
            start_time=_ms(trial.started_at),
            tags=tags | _short(circumstances(trial)),
            run_name=f"trial {trial.number}",
        )
        at = _ms(trial.ended_at or trial.started_at)
        self._client.log_batch(
            run.info.run_id,
            metrics=[Metric(key(name), value, at, 0) for name, value in numbers(trial).items()],
            params=[Param(key(k), str(v)[:LONGEST_PARAM]) for k, v in trial.setting.items()],
        )
        self._client.set_terminated(run.info.run_id, ENDED.get(trial.state, "FAILED"), end_time=at)

    def _retag(self, run: Run, tags: Mapping[str, str]) -> bool:
        """Set the tags that differ; return whether any did."""
        differing = {k: v for k, v in _short(tags).items() if run.data.tags.get(k, "") != v}
        for name, text in differing.items():
            self._client.set_tag(run.info.run_id, name, text)
        return bool(differing)


def _summary(report: StudyReport) -> dict[str, float]:
    """Return a study's known numbers: bill, saving, and means at the baseline and the best setting."""
    bill, gain = report.bill, report.saving
    summary = {
        "saving_percent": None if gain is None else 100.0 * gain.mean,
        "saving_stderr_percent": None if gain is None else 100.0 * gain.stderr,
        "explored_j": bill.explored_j,
        "explored_s": bill.seconds,
        "saved_j": bill.whole.saved_j if bill.whole else None,
        "broken_limits": float(report.study.violations.broken),
    }
    for name, setting in (("baseline", report.baseline), ("best", report.best)):
        metrics = setting.metrics if setting is not None else {}
        summary |= {key(f"{name}.{metric}"): estimate.mean for metric, estimate in metrics.items()}
    return {name: value for name, value in summary.items() if value is not None}


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags with their texts cut to MLflow's limit."""
    return {name: text[:LONGEST_TAG] for name, text in tags.items()}


def _ms(at: datetime) -> int:
    """Return a time in milliseconds since 1970, as MLflow stores it."""
    return int(at.timestamp() * 1000)


def trial_id(trial: TrialView) -> str:
    """Return a trial's id across studies: `STUDY:NUMBER`."""
    return f"{trial.study}:{trial.number}"


def numbers(trial: TrialView) -> dict[str, float]:
    """Return each metric's mean, its standard error, and its bounds, as far as they are finite."""
    finite: dict[str, float] = {}
    for name, estimate in trial.metrics.items():
        parts = {"": estimate.mean, ".stderr": estimate.stderr}
        parts |= {".low": estimate.low, ".high": estimate.high}
        finite |= {f"{name}{part}": v for part, v in parts.items() if math.isfinite(v)}
    return finite


def circumstances(trial: TrialView) -> dict[str, str]:
    """Return further data of a trial as text; the verdict is by the limits now in force."""
    about = {
        "phase": str(trial.phase),
        "state": str(trial.state),
        "verdict": str(trial.verdict or ""),
        "cut_short": "yes" if trial.censored else "",
        "why": trial.why,
        "reason": trial.reason,
        "throttled": ", ".join(trial.throttled),
        **{key(f"load.{name}"): f"{value:g}" for name, value in trial.context.items()},
    }
    return {f"jouletune.{name}": text for name, text in about.items() if text}


def key(name: str) -> str:
    """Return a name of ours as MLflow accepts it: another character is `_` and its code, `a_5B0_5D`."""
    safe = REFUSED.sub(lambda match: f"_{ord(match[0]):X}", name)
    as_path = safe != "." and not safe.startswith(("/", "..")) and normpath(safe) == safe
    return (safe if as_path else re.sub("[./]", "_", safe))[:LONGEST_KEY]


def shown_url(url: str) -> str:
    """Return a URL without its password, for messages."""
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1@", url)


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its type without a text."""
    return (str(error).splitlines() or [type(error).__name__])[0]
