"""`jouletune study freeze` and `thaw`: suspend trials while holds stay."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfGroup, Why, user_name
from tuner.cli.study.choosing import of_group
from tuner.core import ConfigError, Phase
from tuner.presentation.figures import how_many
from tuner.wire import Change, StudyView

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
    views = [api.freeze(one, change) for one in _chosen(api, study, group, every)]
    return _answer(views, "frozen; thaw with `jouletune study thaw`")


@with_api()
def thaw(
    api: Api, study: Study = "", group: OfGroup = "", every: All = False, why: Why = ""
) -> Answer:
    """Let frozen studies start trials again."""
    change = Change(who=user_name(), why=why)
    views = [api.thaw(one, change) for one in _chosen(api, study, group, every)]
    return _answer(views, "thawed")


def _answer(views: list[StudyView], how: str) -> Answer:
    """Return the studies and their number."""
    return Answer(views, f"{how_many(len(views), 'study', 'studies')} {how}")


def _chosen(api: Api, study: str, group: str, every: bool) -> list[str]:
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
