"""`jouletune study freeze` and `thaw`: nothing is tried for a while, and holds stay."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, asks
from tuner.cli.options import Why
from tuner.core import ConfigError, Phase
from tuner.presentation.figures import how_many
from tuner.wire import Change, StudyView

Study = Annotated[
    str, typer.Argument(metavar="[STUDY]", help="The study's id, or its beginning; else a choice.")
]
Group = Annotated[str, typer.Option("--group", metavar="NAME", help="All studies of a group.")]
All = Annotated[bool, typer.Option("--all", help="All studies that are not stopped.")]


@asks()
def freeze(
    api: Api, study: Study = "", group: Group = "", every: All = False, why: Why = ""
) -> Answer:
    """Try nothing more until `thaw`; what is held stays.

    A trial that runs is ended.
    """
    change = Change(who=getpass.getuser(), why=why)
    views = [api.freeze(one, change) for one in _chosen(api, study, group, every)]
    return _answer(views, "frozen; thaw with `jouletune study thaw`")


@asks()
def thaw(
    api: Api, study: Study = "", group: Group = "", every: All = False, why: Why = ""
) -> Answer:
    """Let frozen studies try again."""
    change = Change(who=getpass.getuser(), why=why)
    views = [api.thaw(one, change) for one in _chosen(api, study, group, every)]
    return _answer(views, "thawed")


def _answer(views: list[StudyView], how: str) -> Answer:
    return Answer(views, f"{how_many(len(views), 'study', 'studies')} {how}")


def _chosen(api: Api, study: str, group: str, every: bool) -> list[str]:
    """Return the ids of the studies that are meant.

    Raises:
        ConfigError: not just one way to choose is given, or a group has no study.
    """
    if (bool(study), bool(group), every).count(True) != 1:
        raise ConfigError("no study is chosen", hint="give a study, --group NAME or --all")
    if study:
        return [study]
    ids = [
        view.id
        for view in api.studies()
        if view.phase is not Phase.STOPPED and (every or view.group == group)
    ]
    if not ids and group:
        raise ConfigError(f"no active study is in group {group!r}", hint="list them: `study list`")
    return ids
