"""`jouletune study pause`, `resume`, `stop`, `approve`, `reject`, `delete`: what one may do to a study."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, asks
from tuner.cli.options import StudyId, Why
from tuner.study.advice import plan_in_words
from tuner.wire import Change, Decision

Revision = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Only what this revision proposes, as `study show` told it; else refuse."
    ),
]


@asks()
def pause(api: Api, study: StudyId, why: Why = "") -> Answer:
    """Stop trying until `resume`.

    The devices go back to their original settings.
    """
    before = api.study(study)
    view = api.pause(study, Change(who=getpass.getuser(), why=why))
    how = "was paused already" if view.revision == before.revision else "is paused"
    return Answer(view, f"study {view.id} {how}; go on with `jouletune study resume {view.id}`")


@asks()
def resume(api: Api, study: StudyId, why: Why = "") -> Answer:
    """Go on where a paused study was."""
    before = api.study(study)
    view = api.resume(study, Change(who=getpass.getuser(), why=why))
    again = f"was not paused: it is {view.phase}"
    how = again if view.revision == before.revision else f"is {view.phase} again"
    return Answer(view, f"study {view.id} {how}")


@asks()
def stop(api: Api, study: StudyId, why: Why = "") -> Answer:
    """End a study for good.

    Its devices go back to their original settings and are free.
    """
    before = api.study(study)
    view = api.stop(study, Change(who=getpass.getuser(), why=why))
    how = "was stopped already" if view.revision == before.revision else "is stopped"
    return Answer(view, f"study {view.id} {how}; its history stays")


@asks()
def approve(
    api: Api,
    study: StudyId,
    why: Why = "",
    revision: Revision = None,
    trial: Annotated[
        int | None,
        typer.Option(metavar="N", help="Hold the setting of this trial instead."),
    ] = None,
) -> Answer:
    """Hold what a study with `--safety advise` proposes."""
    decision = Decision(who=getpass.getuser(), why=why, revision=revision, trial=trial)
    view = api.approve(study, decision)
    held = plan_in_words(view.plan) if view.plan else "nothing"
    return Answer(view, f"study {view.id} is {view.phase}: {held}")


@asks()
def reject(api: Api, study: StudyId, why: Why = "", revision: Revision = None) -> Answer:
    """End a study whose proposal is not wanted.

    To have it search on, change what it is to keep: `constraint set`.
    """
    view = api.reject(study, Decision(who=getpass.getuser(), why=why, revision=revision))
    return Answer(view, f"study {view.id} is stopped, nothing is held; its history stays")


@asks()
def delete(
    api: Api,
    study: StudyId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Remove a stopped study and what it measured."""
    view = api.study(study)
    count = sum(view.trials.values())
    if not yes:
        typer.confirm(f"delete study {view.id} and its {count} trials?", abort=True, err=True)
    api.delete(view.id, Change(who=getpass.getuser()))
    return Answer({"deleted": view.id}, f"study {view.id} and its {count} trials are deleted")
