"""In every phase, "confirmed", "applied now" and "paying" each have one answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.tuner.cli import worlds
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Bill, Safety
from tuner.presentation.documents import COLUMNS, ReportedStudy, overview
from tuner.presentation.outcomes import StudyOutcome, applied_now
from tuner.presentation.reports import account, verdict
from tuner.presentation.texts import billed, gained
from tuner.service.operations import Operations
from tuner.wire import Change, Decision


def seen(verbs: Operations, study: str) -> ReportedStudy:
    report, revisions = verbs.report(study), verbs.revisions(study)
    outcome = StudyOutcome.of(report, revisions, verbs.trials(study))
    return ReportedStudy(outcome=outcome, front=())


def paused(verbs: Operations, study: str) -> None:
    verbs.pause(study, Change(who="ann"))


def resumed(verbs: Operations, study: str) -> None:
    paused(verbs, study)
    verbs.resume(study, Change(who="ann"))


def stopped(verbs: Operations, study: str) -> None:
    verbs.stop(study, Change(who="ann"))


def all_stopped(verbs: Operations, study: str) -> None:
    verbs.stop_all(Change(who="ann", why="fire"))


def left_alone(verbs: Operations, study: str) -> None:
    pass


@pytest.mark.parametrize(
    ("then", "applied"),
    [
        (left_alone, True),
        (resumed, True),
        (paused, False),
        (stopped, False),
        (all_stopped, False),
    ],
)
def test_a_confirmed_setting_stays_confirmed_whether_or_not_it_is_applied(
    then: Callable[[Operations, str], None], applied: bool
) -> None:
    verbs, study = worlds.held()
    then(verbs, study)
    one = seen(verbs, study)
    view = one.outcome.report.study
    assert view.confirmed == worlds.BEST == one.outcome.held and one.outcome.won
    assert applied_now(view) is applied
    lines = "\n".join([*verdict(one.outcome), *account(one.outcome)])
    assert "No setting won" not in lines and "does not pay off" not in lines
    assert ("not applied now" not in lines) is applied
    assert ("would pay off" not in lines) is applied
    assert gained(one.outcome.report).startswith("saves" if applied else "would save")
    (row,) = overview([one])
    assert (row[COLUMNS.index(">saving")] != "–") is applied


def test_a_proposal_is_confirmed_and_not_applied_until_it_is_approved() -> None:
    verbs = worlds.operations()
    study = worlds.proposed(verbs)
    view = verbs.study(study)
    assert (view.confirmed, applied_now(view)) == (worlds.BEST, False)
    paused(verbs, study)
    assert verbs.study(study).confirmed == worlds.BEST
    verbs.resume(study, Change(who="ann"))
    verbs.approve(study, Decision(who="ann"))
    assert applied_now(verbs.study(study))


def test_before_any_confirmation_the_bill_reports_that_it_does_not_pay_yet() -> None:
    verbs = worlds.operations()
    study = worlds.created(verbs, safety=Safety.BALANCED)
    one = seen(verbs, study)
    view = one.outcome.report.study
    assert view.confirmed is None and not applied_now(view)
    assert billed(Bill(explored_j=1.0), view).endswith("yet: no setting is confirmed yet")


def test_a_new_search_has_none_of_the_reasons_of_the_one_before() -> None:
    world = World()
    world.start()
    world.run(truth)
    world.loop.changes.start_over(world.store.studies.get("s1"), "another driver")
    verbs = Operations(world.loop)
    again = StudyOutcome.of(verbs.report("s1"), verbs.revisions("s1"), verbs.trials("s1"))
    assert (again.why, again.proposed) == ("another driver", "")
