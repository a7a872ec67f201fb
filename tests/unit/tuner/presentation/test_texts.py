"""What the commands say of a setting, in one line."""

from __future__ import annotations

import pytest

from tests.unit.tuner.cli import worlds
from tuner.presentation.texts import described, remark


@pytest.mark.parametrize(("windows", "ending"), [(1, "(1 window)"), (3, "(3 windows)")])
def test_a_setting_is_described_with_how_often_it_was_measured(windows: int, ending: str) -> None:
    verbs, study = worlds.held()
    best = verbs.best(study).model_copy(update={"windows": windows})
    assert described(best, verbs.report(study).study).endswith(ending)


def test_a_trial_of_one_device_says_on_which_one() -> None:
    verbs, study = worlds.held()
    trial = verbs.trials(study)[-1]
    assert remark(trial) == ""
    alone = trial.model_copy(update={"device": "board-2", "throttled": ("too hot",)})
    assert remark(alone) == "on board-2; throttled: too hot"
