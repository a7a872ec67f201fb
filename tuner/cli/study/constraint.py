"""`jouletune constraint`: show and replace the constraints of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import StudyId, Why, user_name
from tuner.moments import when
from tuner.presentation.figures import figure, joined
from tuner.presentation.reports import effect_lines
from tuner.presentation.texts import previewed
from tuner.wire import ConstraintChange

DOING = {
    "baseline": "measuring the baseline",
    "tuning": "searching again",
    "holding": "the held setting is kept",
}
"""The next step of a study after a change of its constraints, by phase."""


@with_api()
def set_(
    api: Api,
    study: StudyId,
    constraints: Annotated[
        list[str],
        typer.Argument(
            metavar="CONSTRAINT…", help='All constraints from now on: "latency_p99_ms <= 50".'
        ),
    ],
    why: Why = "",
) -> Answer:
    """Replace all constraints of a study; all measurements are judged again."""
    return _replace(api, study, constraints, why)


@with_api()
def preview(
    api: Api,
    study: StudyId,
    constraints: Annotated[
        list[str], typer.Argument(metavar="CONSTRAINT…", help="All constraints.")
    ],
) -> Answer:
    """Show what other constraints would change. Changes nothing."""
    effect = api.preview(study, ConstraintChange(constraints=tuple(constraints)))
    return Answer(effect, previewed(effect, api.study(study)))


@with_api()
def clear(api: Api, study: StudyId, why: Why = "") -> Answer:
    """Remove all constraints of a study; all measurements are judged again."""
    return _replace(api, study, (), why)


def _replace(api: Api, study: str, texts: Sequence[str], why: str) -> Answer:
    """Replace the constraints, and return the study with the change as text."""
    change = ConstraintChange(who=user_name(), why=why, constraints=tuple(texts))
    before = api.study(study).revision
    view = api.set_constraints(study, change)
    constraints = joined(view.constraints, "")
    changed = f"constraints changed to {constraints}" if constraints else "constraints removed"
    if view.revision == before:
        changed = (
            f"the constraints were already {constraints}"
            if constraints
            else "it had no constraints"
        )
    doing = DOING.get(view.phase, f"the study is {view.phase}")
    return Answer(view, f"study {view.id}: {changed}; {doing}")


@with_api(lists=True)
def list_(api: Api, study: StudyId) -> Answer:
    """List the current and earlier constraints of a study, with authors, reasons and effects."""
    view, revisions = api.study(study), api.revisions(study)
    changes = api.constraint_changes(study)
    document = {
        "constraints": view.constraints, "limits": view.limits, "revisions": revisions, "changes": changes
    }  # fmt: skip
    lines: list[str | Rows] = [
        f"current limit: {one.metric} {one.op} {figure(one.metric, one.value, declared=view.quantities)}"
        for one in view.limits
    ]
    rows = [
        (str(change.revision), when(change.at), change.who, joined(change.constraints), change.why)
        for change in changes
    ]
    columns = (">revision", "when", "who", "~constraints", "~why")
    lines.append(Rows(columns, rows, f"study {view.id} has no revisions"))
    for change in changes:
        if change.effect is not None:
            about = f"revision {change.revision}, {change.who}:"
            lines += [f"{about} {line}" for line in effect_lines(change, view)]
    return Answer(document, lines)
