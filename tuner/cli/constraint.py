"""`jouletune constraint`: see and replace the constraints of a study."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson, Db, StudyId, TokenFile, TunerUrl, Why

if TYPE_CHECKING:
    from tuner.verbs.table import Verbs
    from tuner.wire import StudyView

DOING = {
    "baseline": "measuring the baseline",
    "tuning": "searching again",
    "holding": "the held setting stays",
}
"""What a study does once its constraints have changed, by its phase."""

commands = typer.Typer()


@commands.command("set")
def set_(
    study: StudyId,
    constraints: Annotated[
        list[str],
        typer.Argument(
            metavar="CONSTRAINT…", help='All there are from now on: "latency_p99_ms <= 50".'
        ),
    ],
    why: Why = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Replace all constraints of a study; everything measured so far is judged anew."""
    from tuner.cli.operator_api import open_api

    with open_api(tuner, token_file, db) as api:
        _replace(api, study, constraints, why, as_json)


@commands.command("preview")
def preview(
    study: StudyId,
    constraints: Annotated[
        list[str], typer.Argument(metavar="CONSTRAINT…", help="All there would be.")
    ],
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Tell what other constraints would change; nothing is changed."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json
    from tuner.presentation.texts import previewed
    from tuner.wire import ConstraintChange

    with open_api(tuner, token_file, db) as api:
        told = api.preview(study, ConstraintChange(constraints=tuple(constraints)))
        view = api.study(study)
    if as_json:
        echo_json(told)
        return
    for sentence in previewed(told, view):
        typer.echo(sentence)


@commands.command("clear")
def clear(
    study: StudyId,
    why: Why = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Remove all constraints of a study; everything measured so far is judged anew."""
    from tuner.cli.operator_api import open_api

    with open_api(tuner, token_file, db) as api:
        _replace(api, study, (), why, as_json)


def _replace(
    api: Verbs[StudyView], study: str, texts: Sequence[str], why: str, as_json: bool
) -> None:
    from tuner.cli.output import echo_json
    from tuner.presentation.figures import joined
    from tuner.wire import ConstraintChange

    change = ConstraintChange(who=getpass.getuser(), why=why, constraints=tuple(texts))
    before = api.study(study).revision
    view = api.set_constraints(study, change)
    if as_json:
        echo_json(view)
    else:
        kept = joined(view.constraints, "")
        changed = f"constraints changed to {kept}" if kept else "constraints removed"
        if view.revision == before:
            changed = f"the constraints were {kept} already" if kept else "it had no constraints"
        typer.echo(
            f"study {view.id}: {changed}; {DOING.get(view.phase, f'the study is {view.phase}')}"
        )


@commands.command("list")
def list_(
    study: StudyId,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List the constraints of a study and every earlier version of them."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table
    from tuner.presentation.figures import figure, joined, when

    with open_api(tuner, token_file, db) as api:
        view = api.study(study)
        revisions = api.revisions(study)
    if as_json:
        echo_json({"constraints": view.constraints, "limits": view.limits, "revisions": revisions})
        return
    for limit in view.limits:
        value = figure(limit.metric, limit.value, declared=view.quantities)
        typer.echo(f"in force: {limit.metric} {limit.op} {value}")
    changes = [
        revision
        for before, revision in zip([None, *revisions], revisions, strict=False)
        if before is None or before.constraints != revision.constraints
    ]
    echo_table(
        ">revision", "when", "who", "constraints", "why",
        rows=(
            (str(r.revision), when(r.at), r.who, joined(r.constraints), r.why)
            for r in changes
        ),
        nothing=f"study {view.id} has no revisions",
    )  # fmt: skip
