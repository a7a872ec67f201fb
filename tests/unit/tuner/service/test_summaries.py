"""The summaries of studies on the fleet's page: computed in the background, renewed at changes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.builders import START, Time
from tests.unit.tuner.cli.worlds import created, operations, slope, tune
from tuner.core import PeriodSaving, Study
from tuner.presentation.texts import saved_texts
from tuner.service import summaries
from tuner.service.fleet import FleetOverview
from tuner.service.operations import Operations
from tuner.service.summaries import FRESH_S, StudySummary, Summaries
from tuner.wire import Change


@pytest.fixture
def verbs() -> Operations:
    return operations()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "DUTY", 1.0)
    monkeypatch.setattr(summaries, "DUTY_AGAIN", 1.0)


def held(verbs: Operations) -> Study:
    name = created(verbs)
    tune(verbs, slope)
    return verbs.loop.store.studies.get(name)


def test_the_first_look_is_empty_and_the_next_has_the_computed_summary(verbs: Operations) -> None:
    study, cached = held(verbs), Summaries(verbs)
    assert cached.of(study) is None
    assert cached.renew() == 1
    summary = cached.of(study)
    assert summary is not None and summary.saving is not None
    assert summary.saving.mean == pytest.approx(verbs.report(study.id).saving.mean)  # type: ignore[union-attr]
    assert not summary.unmet
    assert cached.renew() == 0


def test_a_list_of_studies_is_whole_while_another_request_forgets_them(
    verbs: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other request reads an empty list, as before the first study, while this one reads a study."""
    fleet, store = FleetOverview(verbs, Summaries(verbs)), verbs.loop.store.studies
    first = held(verbs)
    verbs.stop(first.id, Change())
    assert [s.id for s in fleet.studies()] == [first.id]
    second, stored = created(verbs), store.stored

    def interrupted(**which: Any) -> object:  # noqa: ANN401  as declared
        monkeypatch.undo()
        monkeypatch.setattr(store, "stamps", dict)
        assert fleet.studies() == []
        return stored(**which)

    monkeypatch.setattr(store, "stored", interrupted)
    assert {s.id for s in fleet.studies()} == {first.id, second}


def test_only_changed_summaries_are_computed_again(verbs: Operations) -> None:
    study, cached = held(verbs), Summaries(verbs)
    cached.of(study)
    cached.renew()
    verbs.pause(study.id, Change())
    assert cached.renew() == 1
    assert cached.renew() == 0


def test_a_hold_is_examined_again_after_a_while(verbs: Operations) -> None:
    time = Time()
    study, cached = held(verbs), Summaries(verbs, time.monotonic)
    cached.of(study)
    cached.renew()
    time.sleep(FRESH_S + 1.0)
    assert cached.renew() == 0, "nobody asked"
    cached.of(study)
    assert cached.renew() == 1


def test_a_deleted_study_is_forgotten(verbs: Operations) -> None:
    study, cached = held(verbs), Summaries(verbs)
    cached.of(study)
    verbs.stop(study.id, Change())
    verbs.delete(study.id, Change())
    assert cached.renew() == 1
    assert cached.renew() == 0


def test_a_thread_renews_the_summaries_until_it_is_ended(verbs: Operations) -> None:
    study, cached = held(verbs), Summaries(verbs)
    end = cached.begin()
    cached.of(study)
    for _ in range(1_000):
        if cached.of(study) is not None:
            break
        cached._over.wait(0.01)
    assert cached.of(study) is not None
    end()


def test_the_fleet_s_savings_are_apart_by_origin_and_period(verbs: Operations) -> None:
    def saving(joules: float, origin: str = "measured") -> StudySummary:
        parts = (
            PeriodSaving("last 7 d", START, 1, 60.0, joules, 3.0, 100.0),
            PeriodSaving("in all", START, 2, 120.0, 2.0 * joules, 4.0, 200.0, 0.5),
        )
        return StudySummary(saved=parts, origin=origin)

    summaries = [saving(5.0), saving(7.0), saving(1e6, "simulated")]
    totals = FleetOverview(verbs, Summaries(verbs)).savings(summaries)
    week, whole, simulated, _ = totals
    assert [t.origin for t in totals] == ["measured"] * 2 + ["simulated"] * 2
    assert (week.period.saved_j, week.period.stderr_j, week.period.cost) == (
        12.0,
        math.hypot(3.0, 3.0),
        None,
    )
    assert (whole.period.saved_j, whole.period.cost) == (24.0, 1.0)
    assert whole.period.baseline_j == 400.0 and simulated.period.saved_j == 1e6


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (
            StudySummary(error="a row cannot be read"),
            "not counted: 1 study whose evaluation failed",
        ),
        (StudySummary(uncounted=True), "not counted: 1 study on several devices together"),
    ],
)
def test_studies_missing_in_the_sums_are_counted_without_any_sum(
    verbs: Operations, monkeypatch: pytest.MonkeyPatch, summary: StudySummary, text: str
) -> None:
    created(verbs)
    monkeypatch.setattr(Summaries, "_of", lambda *_, **__: summary)
    view = FleetOverview(verbs, Summaries(verbs)).view()
    assert (view.pending, view.savings) == (0, ())
    assert saved_texts(view) == [text]


def test_a_sum_that_lacks_a_study_is_not_shown(verbs: Operations) -> None:
    study, cached = held(verbs), Summaries(verbs)
    fleet = FleetOverview(verbs, cached)
    assert (fleet.view().pending, fleet.view().savings) == (1, ())
    cached.renew()
    assert fleet.view().pending == 0 and cached.of(study) is not None
