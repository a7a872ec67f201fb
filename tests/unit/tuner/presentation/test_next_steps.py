"""A study's status, the reason for it, and the operator's next steps."""

from __future__ import annotations

import pytest

from tests.unit.tuner.cli.worlds import costly, created, held, operations, proposed
from tuner.core import Limit
from tuner.presentation.next_steps import (
    last_change,
    next_step,
    sentence,
    status_reason,
)
from tuner.presentation.standing import status
from tuner.wire import Change, ConstraintChange


def test_a_hold_needs_no_action_and_shows_its_reason() -> None:
    verbs, study = held()
    view = verbs.study(study)
    assert status(view) == "holding"
    assert next_step(view).startswith("Nothing to do.")
    assert status_reason(view).endswith(".")


def test_the_problem_is_the_status_and_its_remedy_the_next_step() -> None:
    verbs, study = held()
    view = verbs.study(study)
    away = view.model_copy(update={"offline": ("sim",)})
    assert status(away) == "holding, offline" and "Start the agents" in next_step(away)
    halted = view.model_copy(update={"stopped": True})
    assert status(halted) == "holding, stop-all" and "fleet page" in next_step(halted)
    unmet = view.model_copy(update={"unmet": Limit("latency_p99_ms", "<=", 90.0)})
    assert status(unmet) == "limit not met"
    assert "the limit is <= 90.00 ms" in status_reason(unmet)
    assert "Loosen the limit" in next_step(unmet)
    unable = view.model_copy(update={"unable": "the driver hangs"})
    assert next_step(unable) == "Let the device take orders again: the driver hangs"
    faulty = view.model_copy(update={"error": "no plan"})
    assert (status(faulty), status_reason(faulty)) == ("unreadable", "No plan.")


def test_every_phase_has_a_next_step() -> None:
    verbs = operations()
    study = created(verbs)
    assert "the policy may make at most 20" in next_step(verbs.study(study))
    verbs.pause(study, Change(who="ann", why="maintenance"))
    assert next_step(verbs.study(study)) == "Resume the study, or end it."
    verbs.stop(study, Change(who="ann"))
    assert "Create a new study" in next_step(verbs.study(study))
    advised = operations()
    assert "Approve or reject the proposed setting: gpu.clock_mhz=600." in next_step(
        advised.study(proposed(advised))
    )


def test_the_last_change_is_a_persons() -> None:
    verbs, study = held(costly)
    change = last_change(verbs.revisions(study))
    assert change is not None and change.who == "ann"
    second = ConstraintChange(who="bob", why="new SLO", constraints=("latency_p99_ms <= 500",))
    verbs.set_constraints(study, second)
    change = last_change(verbs.revisions(study))
    assert change is not None and (change.who, change.why) == ("bob", "new SLO")
    assert last_change([]) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("confirmed", "Confirmed."),
        ("energy_j fell", "energy_j fell."),
        ("Done.", "Done."),
        ("", ""),
    ],
)
def test_a_sentence_gets_a_capital_and_a_full_stop(text: str, shown: str) -> None:
    assert sentence(text) == shown
