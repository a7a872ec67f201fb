"""Studies in a real storage of Optuna's, read back by Optuna."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.exports.exported import begun, exported
from tuner.core import ConfigError, StoreError
from tuner.exports.optuna import OptunaExport
from tuner.exports.studies import ExportCount
from tuner.wire import ConstraintChange

optuna = pytest.importorskip("optuna")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'optuna.db'}"


def read(url: str, study: str) -> Any:  # noqa: ANN401  a study of Optuna's
    return optuna.load_study(study_name=f"jouletune/{study}", storage=url)


def test_optuna_reads_settings_values_and_kept_limits_back(url: str) -> None:
    verbs, study = worlds.held()
    assert OptunaExport(url).write(exported(verbs, study)) == ExportCount(added=8)
    made = read(url, study)
    assert made.direction == optuna.study.StudyDirection.MINIMIZE
    ours = verbs.trials(study)
    for theirs, trial in zip(made.trials, ours, strict=True):
        assert theirs.params == dict(trial.setting)
        assert theirs.value == trial.metrics["energy_j"].mean
        assert theirs.state == optuna.trial.TrialState.COMPLETE
        latency = trial.metrics["latency_p99_ms"].mean
        assert theirs.constraints == {"0": pytest.approx(latency - 120.0)}
        assert theirs.system_attrs["constraints"] == list(theirs.constraints.values())
        assert theirs.user_attrs["jouletune.verdict"] == "feasible"
        assert theirs.datetime_start.astimezone() == trial.started_at
    assert made.best_trial.params["gpu.clock_mhz"] == 600
    (range_,) = {t.distributions["gpu.clock_mhz"] for t in made.trials}
    assert (range_.low, range_.high) == (400, 1000), "what the device offers"


def test_a_broken_limit_is_shown_as_such_and_a_bound_is_not_a_value(url: str) -> None:
    verbs, study = worlds.held(worlds.steep)
    OptunaExport(url).write(exported(verbs, study))
    pruned = [t for t in read(url, study).trials if t.state.name == "PRUNED"]
    assert [t.params["gpu.clock_mhz"] for t in pruned] == [600]
    assert pruned[0].value is None or pruned[0].intermediate_values
    assert max(pruned[0].constraints.values()) > 0.0


def test_a_failed_round_has_its_reason(url: str) -> None:
    verbs, study = worlds.held(worlds.broken_at_800)
    OptunaExport(url).write(exported(verbs, study))
    (failed,) = (t for t in read(url, study).trials if t.state.name == "FAIL")
    assert failed.user_attrs["jouletune.reason"] == "the clock was refused"
    assert failed.params["gpu.clock_mhz"] == 800


def test_a_repeated_export_adds_only_trials_that_ended_since(url: str) -> None:
    verbs, study = begun()
    assert OptunaExport(url).write(exported(verbs, study)) == ExportCount()
    worlds.tune(verbs)
    whole = exported(verbs, study)
    assert OptunaExport(url).write(whole) == ExportCount(added=8)
    assert OptunaExport(url).write(whole) == ExportCount(known=8)
    assert len(read(url, study).trials) == 8


def test_after_a_change_of_the_limits_a_study_is_written_anew(url: str) -> None:
    verbs, study = worlds.held()
    OptunaExport(url).write(exported(verbs, study))
    verbs.set_constraints(study, ConstraintChange(constraints=("latency_p99_ms <= 105",)))
    assert OptunaExport(url).write(exported(verbs, study)) == ExportCount(changed=8)
    made = read(url, study)
    assert len(made.trials) == 8
    assert made.user_attrs["limits"] == ["latency_p99_ms <= 105"]
    by_clock = {t.params["gpu.clock_mhz"]: t.constraints["0"] for t in made.trials}
    assert (by_clock[600], by_clock[1000]) == (pytest.approx(5.0), pytest.approx(-5.0))
    assert OptunaExport(url).write(exported(verbs, study)) == ExportCount(known=8)


def test_an_interrupted_export_is_completed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs, study = worlds.held()
    add = optuna.study.Study.add_trial
    added: list[object] = []

    def cut_short(self: object, trial: object) -> None:
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(trial)
        add(self, trial)

    with monkeypatch.context() as patched:
        patched.setattr(optuna.study.Study, "add_trial", cut_short)
        with pytest.raises(KeyboardInterrupt):
            OptunaExport(url).write(exported(verbs, study))
    OptunaExport(url).write(exported(verbs, study))
    names = [t.user_attrs["jouletune.trial"] for t in read(url, study).trials]
    assert names == [f"{study}:{n}" for n in range(1, 9)]


def test_words_and_switches_are_choices_and_whole_numbers_beside_others_are_a_range(
    url: str,
) -> None:
    verbs, study = worlds.held()
    whole = exported(verbs, study)
    settings: list[Mapping[str, Any]] = [
        {"mode": "fast", "on": True, "x": 1},
        {"mode": "slow", "on": False, "x": 1.5},
    ]
    trials = tuple(
        t.model_copy(update={"setting": s}) for t, s in zip(whole.trials, settings, strict=False)
    )
    OptunaExport(url).write(replace(whole, trials=trials, knobs=()))
    kinds = {k: type(d).__name__ for k, d in read(url, study).trials[0].distributions.items()}
    assert kinds == {
        "mode": "CategoricalDistribution",
        "on": "CategoricalDistribution",
        "x": "FloatDistribution",
    }


@pytest.mark.parametrize(
    ("storage", "kind"),
    [
        ("nonsense:", ConfigError),
        ("bogus://host/name", ConfigError),
        ("sqlite:////no/such/folder/x.db", StoreError),
        ("postgresql+psycopg://ann:secret@127.0.0.1:9/x", StoreError),
    ],
)
def test_an_invalid_storage_is_reported_without_its_password(
    storage: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="storage") as refused:
        OptunaExport(storage)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_optuna_the_package_to_install_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with raised(ConfigError, "optuna") as refused:
        OptunaExport(url)
    assert "jouletune[optuna]" in refused.value.hint
