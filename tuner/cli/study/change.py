"""`jouletune study pause`, `resume`, `stop`, `approve`, `reject`, `delete`: changes of a study."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfGroup, StudyId, Why, Yes, confirm, user_name
from tuner.cli.study.choosing import of_group
from tuner.cli.study.report import outcome_of, refuse_untuned
from tuner.core import ConfigError, InvalidInput, Phase
from tuner.moments import seconds
from tuner.presentation.figures import how_many, joined
from tuner.presentation.standing import status
from tuner.wire import Change, Decision, StudyView

Revision = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Refuse if the proposal has another revision; `study show` shows it."
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
    held = view.plan.in_words if view.plan else "nothing"
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


Study = Annotated[
    str,
    typer.Argument(
        metavar="[STUDY]", help="The study's id or a unique prefix; or --group or --all."
    ),
]
All = Annotated[bool, typer.Option("--all", help="All studies that are not stopped.")]


@with_api()
def freeze(
    api: Api, study: Study = "", group: OfGroup = "", every: All = False, why: Why = ""
) -> Answer:
    """Start no trials until `thaw`; holds stay. Ends running trials."""
    change = Change(who=user_name(), why=why)
    views = [api.freeze(one, change) for one in _frozen_ids(api, study, group, every)]
    return _counted(views, "frozen; thaw with `jouletune study thaw`")


@with_api()
def thaw(
    api: Api, study: Study = "", group: OfGroup = "", every: All = False, why: Why = ""
) -> Answer:
    """Let frozen studies start trials again."""
    change = Change(who=user_name(), why=why)
    views = [api.thaw(one, change) for one in _frozen_ids(api, study, group, every)]
    return _counted(views, "thawed")


def _counted(views: list[StudyView], how: str) -> Answer:
    """Return the studies and their number."""
    return Answer(views, f"{how_many(len(views), 'study', 'studies')} {how}")


def _frozen_ids(api: Api, study: str, group: str, every: bool) -> list[str]:
    """Return the ids of the chosen studies.

    Raises:
        ConfigError: none or several of STUDY, --group and --all are given.
        NotFound: no study is in the group.
    """
    if (ways := (bool(study), bool(group), every).count(True)) != 1:
        wrong = "several ways to choose studies are given" if ways else "no study is chosen"
        raise ConfigError(wrong, hint="give a study, --group NAME or --all")
    if study:
        return [study]
    return [v.id for v in of_group(api.studies(), group) if v.phase is not Phase.STOPPED]


LOOK_S = 1.0
TIMED_OUT = 124
"""The exit code after the timeout, as of timeout(1)."""
ENDED = (Phase.HOLDING, Phase.PROPOSED, Phase.PAUSED, Phase.STOPPED)
"""Phases that a study leaves only by an operator's command or by drift."""


@with_api()
def wait(
    api: Api,
    study: StudyId,
    for_: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="STATUS",
            help="holding, proposed, paused, stopped, or another phase; default: any of these four.",
        ),
    ] = "",
    timeout: Annotated[
        str, typer.Option(metavar="LENGTH", help="The longest to wait, like 90s, 30m or 2h.")
    ] = "1h",
) -> Answer:
    """Wait until a study reaches a status.

    Exits with 0 once it does, with 124 after the timeout, and with 1 once the study is stopped or paused
    instead, or holds or proposes the baseline because nothing could be tuned.
    """
    phases = ENDED if not for_ else (_phase(for_),)
    deadline = time.monotonic() + seconds("--timeout", timeout)
    while True:
        view = api.study(study)
        if view.phase in phases:
            if view.phase in (Phase.HOLDING, Phase.PROPOSED):
                refuse_untuned(outcome_of(api, view))
            return Answer(view, f"study {view.id} is {status(view)}: {view.phase_why}")
        if view.phase in (Phase.STOPPED, Phase.PAUSED):
            return _missed(view, f"it is {status(view)}: {view.phase_why}")
        if time.monotonic() >= deadline:
            return _missed(view, f"still {status(view)} after {timeout}", TIMED_OUT)
        time.sleep(LOOK_S)


def _missed(view: StudyView, why: str, code: int = 1) -> Answer:
    """Return the failed result of a wait."""
    step = f"`jouletune study show {view.id}` has the details"
    text = f"study {view.id} did not reach that status: {why}; {step}"
    return Answer(view, text, failed=True, code=code)


def _phase(text: str) -> Phase:
    """Return the phase with a name. Raises InvalidInput."""
    try:
        return Phase(text)
    except ValueError:
        raise InvalidInput(f"--for cannot be {text!r}", hint=f"choose {', '.join(Phase)}") from None
