"""A setting as one line of text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import START
from tests.unit.tuner.cli import worlds
from tuner.core import Estimate, PeriodSaving
from tuner.presentation.reports import facts
from tuner.presentation.texts import described, idle_texts, remark, saved_by_period


@pytest.mark.parametrize(("windows", "ending"), [(1, "(1 window)"), (3, "(3 windows)")])
def test_a_setting_is_described_with_how_often_it_was_measured(windows: int, ending: str) -> None:
    verbs, study = worlds.held()
    best = verbs.best(study).model_copy(update={"windows": windows})
    assert described(best, verbs.report(study).study).endswith(ending)


def test_a_trial_of_one_device_names_the_device() -> None:
    verbs, study = worlds.held()
    trial = verbs.trials(study)[-1]
    assert remark(trial) == ""
    alone = trial.model_copy(update={"device": "board-2", "throttled": ("too hot",)})
    assert remark(alone) == "on board-2; throttled: too hot"


def test_a_saving_by_period_gives_its_windows_and_its_unknown_time() -> None:
    verbs, study = worlds.held()
    report = verbs.report(study)
    assert saved_by_period(report) == [("this hold", "unknown", "no window of it was measured yet")]
    bare = report.baseline.model_copy(
        update={"metrics": {"cpu_time_ms": Estimate.of_mean(1.0, 0.1, 9)}}
    )
    unmetered = report.model_copy(update={"baseline": bare})
    assert saved_by_period(unmetered) == [("this hold", "unknown", "its energy is not measured")]
    week = PeriodSaving("last 7 d", START, 90, 7200.0, 12_300.0, 400.0)
    today = PeriodSaving("last 24 h", START)
    bill = replace(report.bill, whole=week, periods=(today, week))
    held = report.model_copy(update={"bill": bill})
    assert saved_by_period(held) == [
        ("last 24 h", "unknown", "no window of a hold was measured"),
        ("last 7 d", "12.30 ± 0.40 kJ (0.00342 kWh)", "2 h of holding, 90 windows"),
    ]
    month = replace(week, period="last 30 d")
    same = replace(bill, periods=(today, week, month))
    assert [name for name, *_ in saved_by_period(report.model_copy(update={"bill": same}))] == [
        "last 24 h",
        "last 7 d, last 30 d",
    ]
    several = held.study.model_copy(update={"devices": ("a", "b")})
    (row,) = saved_by_period(held.model_copy(update={"study": several}))
    assert row[1:] == ("unknown", "not computed for a study of several devices")


def test_power_without_requests_is_shown_with_the_bill_if_measured() -> None:
    verbs, study = worlds.held()
    report = verbs.report(study)
    view = report.study
    assert [*idle_texts(view)] == []
    power = {
        "idle_w": Estimate.of_mean(80.0, 0.5, 6),
        "idle_unloaded_w": Estimate.of_mean(20, 1, 6),
    }
    idle = view.baseline.model_copy(update={"metrics": {**view.baseline.metrics, **power}})
    loaded, unloaded = idle_texts(view.model_copy(update={"baseline": idle}))
    assert loaded.startswith("80.00 ± 0.50 W") and "1.92 kWh a day" in loaded
    assert unloaded.startswith("20.0 ± 1.0 W") and "0.48 kWh a day" in unloaded
    shown = report.model_copy(update={"study": view.model_copy(update={"baseline": idle})})
    assert [text for name, text in facts(shown) if name == "idle"] == [loaded, unloaded]
