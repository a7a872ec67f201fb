"""`jouletune study pause`, `resume`, `stop`, `approve`, `reject`, `delete`: changes of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.confirming import Yes, confirm
from tuner.cli.options import StudyId, Why, user_name
from tuner.core import Phase
from tuner.presentation.figures import joined
from tuner.study.advice import plan_in_words
from tuner.wire import Change, Decision

Revision = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Refuse if the proposal has another revision; `study show` shows it.",
    ),
]


@with_api()
def pause(api: Api, study: StudyId, why: Why = "") -> Answer:
    """Pause a study until `resume`.

    The devices return to their original settings.
    """
    before = api.study(study)
    view = api.pause(study, Change(who=user_name(), why=why))
    how = "was already paused" if view.revision == before.revision else "is paused"
    return Answer(view, f"study {view.id} {how}; continue with `jouletune study resume {view.id}`")


@with_api()
def resume(api: Api, study: StudyId, why: Why = "") -> Answer:
    """Continue a paused study."""
    before = api.study(study)
    view = api.resume(study, Change(who=user_name(), why=why))
    again = f"was not paused: it is {view.phase}"
    how = again if view.revision == before.revision else f"is {view.phase} again"
    return Answer(view, f"study {view.id} {how}")


@with_api()
def stop(api: Api, study: StudyId, why: Why = "", yes: Yes = False) -> Answer:
    """End a study permanently.

    Its devices return to their original settings and are free for another study. Asks first.
    """
    before = api.study(study)
    if before.phase is not Phase.STOPPED:
        confirm(f"stop study {before.id} permanently and restore {joined(before.devices)}?", yes)
    view = api.stop(study, Change(who=user_name(), why=why))
    how = "was already stopped" if view.revision == before.revision else "is stopped"
    return Answer(view, f"study {view.id} {how}; its history stays")


@with_api()
def approve(
    api: Api,
    study: StudyId,
    why: Why = "",
    revision: Revision = None,
    trial: Annotated[
        int | None,
        typer.Option(metavar="N", help="Hold the setting of this trial instead of the proposal."),
    ] = None,
) -> Answer:
    """Hold the proposal of a study with `--safety advise`."""
    decision = Decision(who=user_name(), why=why, revision=revision, trial=trial)
    view = api.approve(study, decision)
    held = plan_in_words(view.plan) if view.plan else "nothing"
    return Answer(view, f"study {view.id} is {view.phase}: {held}")


@with_api()
def reject(api: Api, study: StudyId, why: Why = "", revision: Revision = None) -> Answer:
    """Reject the proposal of a study and end it.

    To let it continue the search, change its constraints instead: `constraint set`.
    """
    view = api.reject(study, Decision(who=user_name(), why=why, revision=revision))
    return Answer(view, f"study {view.id} is stopped, nothing is held; its history is kept")


@with_api()
def delete(api: Api, study: StudyId, yes: Yes = False) -> Answer:
    """Delete a stopped study and its measurements. Asks first."""
    view = api.study(study)
    trials = "its trials" if view.error else f"its {sum(view.trials.values())} trials"
    confirm(f"delete study {view.id} and {trials}?", yes)
    api.delete(view.id, Change(who=user_name()))
    return Answer({"deleted": view.id}, f"study {view.id} and {trials} are deleted")
