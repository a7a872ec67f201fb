"""The end of a proposal, and the effect of changed constraints."""

from __future__ import annotations

import pytest

from tests.builders import applied, device, setting
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.core import Conflict, IllegalTransition, InvalidInput, NotFound, Phase, Plan
from tuner.presentation.reports import effect_lines
from tuner.service.operations import Operations
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintEffect,
    Decision,
    HoldOrder,
    HoldReport,
    Poll,
    Release,
)

WINNER = Plan.single(setting(600))
ANN = Decision(who="ann")


@pytest.fixture
def verbs() -> Operations:
    return worlds.operations()


def asked(verbs: Operations) -> object:
    return verbs.loop.order("sim", Poll(agent="host", applied=applied()))


def events(verbs: Operations, name: str) -> list[tuple[str, str]]:
    return [(e.kind, e.text) for e in verbs.events(name)]


def test_another_trial_that_keeps_the_limits_may_be_approved_in_its_place(
    verbs: Operations,
) -> None:
    name = worlds.proposed(verbs)
    other = next(t for t in verbs.trials(name) if t.setting == setting(800))
    with raised(InvalidInput, "is not proven to keep all limits"):
        verbs.approve(name, Decision(who="ann", trial=99))
    assert verbs.study(name).phase is Phase.PROPOSED
    held = verbs.approve(name, Decision(who="ann", trial=other.number))
    assert held.plan == Plan.single(setting(800))


def test_an_approved_plan_is_held_with_author_time_and_reason(verbs: Operations) -> None:
    name = worlds.proposed(verbs)
    verbs.loop.changes.now = lambda: device().seen_at.replace(year=2027)
    view = verbs.approve(name, Decision(who="ann", why="the bill is high"))
    assert (view.phase, view.plan) == (Phase.HOLDING, WINNER)
    last = verbs.revisions(name)[-1]
    sentence = "approved by ann: gpu.clock_mhz=600 batch_size=1; the bill is high"
    assert (last.who, last.why, last.at.year) == ("ann", sentence, 2027)
    assert events(verbs, name)[-1] == ("holding", sentence)
    order = asked(verbs)
    assert isinstance(order, HoldOrder)
    assert (order.plan, order.revision) == (WINNER, view.revision)


def test_a_rejection_ends_the_study_and_frees_its_device(verbs: Operations) -> None:
    name = worlds.proposed(verbs)
    view = verbs.reject(name, Decision(who="ann", why="not before the release"))
    assert (view.phase, view.plan) == (Phase.STOPPED, None)
    assert verbs.revisions(name)[-1].why.endswith("; not before the release")
    assert isinstance(asked(verbs), Release)
    assert verbs.devices()[0].study == ""
    assert worlds.created(verbs) != name


def test_a_decision_made_twice_changes_nothing(verbs: Operations) -> None:
    name = worlds.proposed(verbs)
    seen = Decision(who="ann", revision=verbs.study(name).revision)
    for _ in range(2):
        assert verbs.approve(name, seen).phase is Phase.HOLDING
    assert sum(r.who == "ann" for r in verbs.revisions(name)) == 2, "created and approved"
    worlds.retire(verbs)
    name = worlds.proposed(verbs)
    for _ in range(2):
        assert verbs.reject(name, ANN).phase is Phase.STOPPED
    assert sum(r.who == "ann" for r in verbs.revisions(name)) == 2


@pytest.mark.parametrize("verb", [Operations.approve, Operations.reject])
def test_a_decision_on_a_former_proposal_is_refused(verbs: Operations, verb: worlds.Decide) -> None:
    name = worlds.proposed(verbs)
    seen = verbs.study(name).revision
    verbs.set_constraints(name, ConstraintChange(constraints=("latency_p99_ms <= 130",)))
    worlds.tune(verbs, until=Release)
    with raised(Conflict, seen) as refused:
        verb(verbs, name, Decision(revision=seen))
    assert f"study show {name}" in refused.value.hint
    now = verbs.study(name)
    assert (now.phase, now.plan) == (Phase.PROPOSED, WINNER)
    assert verb(verbs, name, Decision(revision=now.revision)).phase is not Phase.PROPOSED


@pytest.mark.parametrize("verb", [Operations.approve, Operations.reject])
def test_without_a_proposal_there_is_nothing_to_decide(
    verbs: Operations, verb: worlds.Decide
) -> None:
    name = worlds.created(verbs)
    with raised(IllegalTransition, "baseline"):
        verb(verbs, name, ANN)
    worlds.tune(verbs)
    with raised(IllegalTransition, "holding"):
        verb(verbs, name, ANN)
    with pytest.raises(NotFound):
        verb(verbs, "nobody", ANN)


@pytest.mark.parametrize("verb", [Operations.approve, Operations.reject])
def test_a_paused_proposal_is_decided_after_it_is_resumed(
    verbs: Operations, verb: worlds.Decide
) -> None:
    name = worlds.proposed(verbs)
    verbs.pause(name, Change())
    with pytest.raises(IllegalTransition, match="is paused") as refused:
        verb(verbs, name, ANN)
    assert f"study resume {name}" in refused.value.hint
    assert verbs.resume(name, Change()).phase is Phase.PROPOSED
    assert "withdrawn" not in dict(events(verbs, name))
    verb(verbs, name, ANN)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("limit", ["latency_p99_ms <= 130", "latency_p99_ms <= 105"])
def test_other_constraints_withdraw_a_proposal_and_the_study_tunes_on(
    verbs: Operations, paused: bool, limit: str
) -> None:
    name = worlds.proposed(verbs)
    if paused:
        verbs.pause(name, Change())
    changed = verbs.set_constraints(name, ConstraintChange(constraints=(limit,), who="bob"))
    assert (changed.phase, changed.plan) == (Phase.PAUSED if paused else Phase.TUNING, None)
    kind, text = events(verbs, name)[-1]
    assert kind == "withdrawn"
    assert text.endswith(f"is no longer proposed: constraints changed to {limit}")
    if paused:
        assert isinstance(asked(verbs), Release)
        assert verbs.resume(name, Change()).phase is Phase.TUNING
    worlds.tune(verbs, until=Release)
    assert verbs.study(name).phase is Phase.PROPOSED, "a yes is needed again"


def test_a_hold_that_ended_is_proposed_anew_and_not_taken_up_by_itself(verbs: Operations) -> None:
    name = worlds.proposed(verbs)
    view = verbs.approve(name, ANN)
    verbs.loop.hold_reports.observe(
        HoldReport(
            device="sim", study=name, revision=view.revision, setting=setting(600), ended="drift"
        )
    )
    worlds.tune(verbs, until=Release)
    assert verbs.study(name).phase is Phase.PROPOSED


def test_a_proposal_is_reported_with_its_setting_saving_doubt_and_limits(
    verbs: Operations,
) -> None:
    report = verbs.report(worlds.proposed(verbs))
    assert report.best is not None and report.saving is not None
    assert (report.best.setting, report.alternating, report.limit_kept) == (
        setting(600),
        True,
        True,
    )
    assert report.saving.mean == pytest.approx(0.4)
    assert report.saving.stderr > 0.0
    assert [str(limit.value) for limit in report.study.limits] == ["120.0"]
    assert (report.study.plan, report.study.unmet, report.bill.whole) == (WINNER, None, None)


def changed(verbs: Operations, study: str, *constraints: str) -> None:
    verbs.set_constraints(study, ConstraintChange(who="bob", why="SLO", constraints=constraints))


def effect(verbs: Operations, study: str, number: int = -1) -> ConstraintEffect:
    own = verbs.constraint_changes(study)[number].effect
    assert own is not None
    return own


def lines(verbs: Operations, study: str, number: int = -1) -> str:
    return " ".join(effect_lines(verbs.constraint_changes(study)[number], verbs.study(study)))


def test_the_first_constraints_have_no_effect_and_other_revisions_are_not_changes() -> None:
    verbs, study = worlds.held()
    (first,) = verbs.constraint_changes(study)
    assert (first.revision, first.effect, first.added) == (1, None, first.constraints)
    assert "created" in lines(verbs, study)


def test_a_held_setting_that_keeps_the_new_limits_stays() -> None:
    verbs, study = worlds.held()
    changed(verbs, study, "latency_p99_ms <= 130")
    own = effect(verbs, study)
    assert own.result == "kept" and own.before is not None and own.after is not None
    assert own.before.setting.setting == own.after.setting.setting == worlds.BEST
    assert [limit.value for limit in own.before.limits] != [x.value for x in own.after.limits]
    text = lines(verbs, study)
    assert "No change" in text and "limit <= 130.0 ms" in text and "saves 40.0" in text


def test_a_tightened_limit_searches_and_then_holds_another_setting() -> None:
    verbs, study = worlds.held()
    changed(verbs, study, "latency_p99_ms <= 106")
    searching = effect(verbs, study)
    assert (searching.result, searching.after) == ("searching", None)
    assert "searching again" in lines(verbs, study)
    worlds.tune(verbs)
    own = effect(verbs, study)
    assert own.result == "other" and own.after is not None and own.held_at is not None
    assert own.after.setting.setting != worlds.BEST
    assert "held since" in lines(verbs, study)


def test_a_search_that_ends_before_it_holds_anything_is_ended() -> None:
    verbs, study = worlds.held()
    changed(verbs, study, "latency_p99_ms <= 106")
    changed(verbs, study, "latency_p99_ms <= 107")
    assert [effect(verbs, study, n).result for n in (-2, -1)] == ["ended", "searching"]
    verbs.stop(study, Change(who="bob"))
    assert effect(verbs, study).result == "ended"


def test_the_same_setting_may_be_held_again() -> None:
    verbs, study = worlds.held(worlds.flat)
    changed(verbs, study, "latency_p99_ms <= 500")
    assert effect(verbs, study).result == "searching"
    worlds.tune(verbs, worlds.flat)
    own = effect(verbs, study)
    assert own.result == "same" and own.after is not None and own.after.saving is None
    assert "the same setting is held since" in lines(verbs, study)


def test_the_first_hold_under_new_constraints_has_no_predecessor() -> None:
    verbs, study = worlds.held()
    changed(verbs, study, "latency_p99_ms <= 106")
    changed(verbs, study, worlds.LIMIT)
    worlds.tune(verbs)
    own = effect(verbs, study)
    assert (own.result, own.before) == ("other", None)
    assert "No setting was held then" in lines(verbs, study)
