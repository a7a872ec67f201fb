"""A study drawn without a browser."""

from __future__ import annotations

import sys

import pytest

from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.core import ConfigError, InvalidInput
from tuner.presentation.pictures import study_picture, svg
from tuner.service.operations import Operations
from tuner.wire import Change, StudyDraft


def picture(verbs: Operations, study: str) -> str:
    return svg(study_picture(verbs.report(study), verbs.trials(study), verbs.pareto(study)))


@pytest.fixture(autouse=True)
def drawing() -> None:
    pytest.importorskip("matplotlib")


def test_the_limit_and_every_kind_of_window_are_in_the_legend() -> None:
    text = picture(*worlds.held(worlds.steep))
    for part in ("limit 120", "censored", "feasible (", "baseline", "best", "energy_j (J)"):
        assert part in text
    assert "study " in text


def test_the_same_study_gives_the_same_picture() -> None:
    verbs, study = worlds.held()
    assert picture(verbs, study) == picture(verbs, study)


def test_an_objective_with_nothing_beside_it_is_drawn_by_trial() -> None:
    verbs, study = worlds.held()
    report, trials = verbs.report(study), verbs.trials(study)
    alone = [t.model_copy(update={"metrics": {"energy_j": t.metrics["energy_j"]}}) for t in trials]
    text = svg(study_picture(report, alone, ()))
    assert "best so far" in text and "trial" in text


def test_before_anything_is_measured_there_is_nothing_to_draw() -> None:
    verbs = worlds.operations()
    study = verbs.create(StudyDraft(devices=("sim",), constraints=(), policy="scripted")).id
    verbs.stop(study, Change())
    with raised(InvalidInput, "measured"):
        picture(verbs, study)


def test_without_matplotlib_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with raised(ConfigError, "matplotlib") as refused:
        picture(*worlds.held())
    assert "jouletune[client]" in refused.value.hint
