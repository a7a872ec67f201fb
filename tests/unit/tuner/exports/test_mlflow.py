"""Studies in a real tracking store of MLflow's, read back by MLflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.exports.exported import begun, exported
from tuner.core import ConfigError, StoreError
from tuner.exports.mlflow import ExportCount, MlflowExport, key
from tuner.service.operations import Operations
from tuner.wire import Change, ConstraintChange

tracking = pytest.importorskip("mlflow.tracking")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def runs(uri: str) -> list[Any]:
    """Return all runs of the experiment, by start."""
    client = tracking.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("jouletune").experiment_id
    return sorted(client.search_runs([experiment]), key=lambda run: run.info.start_time)


def of(uri: str) -> tuple[Any, dict[str, Any]]:
    """Return the run of the one study, and those of its trials by their ids."""
    trials = {
        r.data.tags["jouletune.trial"]: r for r in runs(uri) if "jouletune.trial" in r.data.tags
    }
    (parent,) = (r for r in runs(uri) if "jouletune.trial" not in r.data.tags)
    return parent, trials


def test_mlflow_has_one_run_for_each_study_with_its_trials_nested(uri: str) -> None:
    verbs, study = worlds.held()
    assert MlflowExport(uri).write(exported(verbs, study)) == ExportCount(added=8)
    parent, trials = of(uri)
    assert parent.data.params["policy"] == "scripted"
    assert parent.data.metrics["saving_percent"] == pytest.approx(40.0)
    assert parent.data.metrics["best.energy_j"] == pytest.approx(6.0)
    assert parent.data.tags["jouletune.constraints"] == worlds.LIMIT
    assert parent.info.status == "FINISHED"
    for ours in verbs.trials(study):
        theirs = trials[f"{study}:{ours.number}"]
        assert theirs.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert theirs.data.params == {name: str(value) for name, value in ours.setting.items()}
        assert theirs.data.metrics["energy_j"] == ours.metrics["energy_j"].mean
        assert theirs.data.metrics["energy_j.stderr"] == ours.metrics["energy_j"].stderr
        assert theirs.data.tags["jouletune.verdict"] == "feasible"
        assert theirs.info.status == "FINISHED"
        assert theirs.info.start_time == int(ours.started_at.timestamp() * 1000)


@given(st.text(min_size=1))
@example("./")
@example("a//b")
def test_mlflow_accepts_every_name_of_a_knob(name: str) -> None:
    checks = pytest.importorskip("mlflow.utils.validation")
    checks._validate_param(key(name), "1")
    checks._validate_metric(key(name), 1.0, 0, 0)
    checks._validate_tag(key(name), "1")


def test_a_repeated_export_adds_only_trials_that_ended_since(uri: str) -> None:
    verbs, study = begun()
    assert MlflowExport(uri).write(exported(verbs, study)) == ExportCount()
    assert of(uri)[0].info.status == "RUNNING"
    worlds.tune(verbs)
    whole = exported(verbs, study)
    assert MlflowExport(uri).write(whole) == ExportCount(added=8)
    first = runs(uri)
    assert MlflowExport(uri).write(whole) == ExportCount(known=8)
    assert [r.to_dictionary() for r in runs(uri)] == [r.to_dictionary() for r in first]
    client = tracking.MlflowClient(tracking_uri=uri)
    history = client.get_metric_history(of(uri)[0].info.run_id, "saving_percent")
    assert len(history) == 1


def test_todays_verdict_and_status_are_computed_anew(uri: str) -> None:
    verbs, study = worlds.held()
    MlflowExport(uri).write(exported(verbs, study))
    verbs.set_constraints(study, ConstraintChange(constraints=("latency_p99_ms <= 105",)))
    verbs.stop(study, Change(why="enough"))
    count = MlflowExport(uri).write(exported(verbs, study))
    assert count["added"] == 0 and count["changed"] >= 1 and count.total() == 8
    parent, trials = of(uri)
    assert parent.data.tags["jouletune.why"] == "enough"
    verdicts = {t.number: str(t.verdict or "") for t in verbs.trials(study)}
    assert {n: trials[f"{study}:{n}"].data.tags.get("jouletune.verdict", "") for n in verdicts} == (
        verdicts
    )


def test_failed_and_censored_trials_are_marked(uri: str) -> None:
    for surface, state, tag in (
        (worlds.broken_at_800, "FAILED", ("jouletune.reason", "the clock was refused")),
        (worlds.steep, "FINISHED", ("jouletune.cut_short", "yes")),
    ):
        verbs, study = worlds.held(surface)
        MlflowExport(uri).write(exported(verbs, study))
        matching = [r for r in runs(uri) if r.data.tags.get(tag[0]) == tag[1]]
        assert [r.info.status for r in matching] == [state]


def test_an_interrupted_export_is_completed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs, study = worlds.held()
    log = tracking.MlflowClient.log_batch
    logged: list[str] = []

    def cut_short(self: object, run_id: str, **what: object) -> None:
        if len(logged) == 3:
            raise KeyboardInterrupt
        logged.append(run_id)
        log(self, run_id, **what)

    with monkeypatch.context() as patched:
        patched.setattr(tracking.MlflowClient, "log_batch", cut_short)
        with pytest.raises(KeyboardInterrupt):
            MlflowExport(uri).write(exported(verbs, study))
    assert MlflowExport(uri).write(exported(verbs, study)) == ExportCount(added=6, known=2)
    _, trials = of(uri)
    assert sorted(trials) == [f"{study}:{n}" for n in range(1, 9)]
    assert all(run.data.metrics for run in trials.values())


def test_two_studies_are_two_runs_in_an_experiment_of_any_name(uri: str) -> None:
    verbs: Operations
    for _ in range(2):
        verbs, study = worlds.held()
        MlflowExport(uri, "lab").write(exported(verbs, study))
    client = tracking.MlflowClient(tracking_uri=uri)
    matching = client.search_runs([client.get_experiment_by_name("lab").experiment_id])
    assert len({r.data.tags["jouletune.study"] for r in matching}) == 2


def test_an_address_without_mlflow_is_one_line(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with raised(ConfigError, "address") as refused:
        MlflowExport("nonsense:")
    assert "\n" not in str(refused.value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    verbs, study = worlds.held()
    away = MlflowExport("http://127.0.0.1:9")
    with raised(StoreError, "http://127.0.0.1:9") as told_too:
        away.write(exported(verbs, study))
    assert "\n" not in str(told_too.value)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    with raised(ConfigError, "jouletune[mlflow]"):
        MlflowExport(uri)
