"""The effect of changed constraints: same setting, another setting, a new search, or the end."""

from __future__ import annotations

from tests.unit.tuner.cli import worlds
from tuner.presentation.reports import effect_lines
from tuner.service.operations import Operations
from tuner.wire import Change, ConstraintChange, ConstraintEffect


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
