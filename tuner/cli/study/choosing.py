"""The choice of studies for a report or an export."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuner.cli.asking import Api
from tuner.core import ConfigError, NotFound, Phase
from tuner.moments import moment
from tuner.presentation.figures import joined
from tuner.wire import StudyView


def of_group(views: Sequence[StudyView], group: str) -> list[StudyView]:
    """Return the studies of a group of a fleet file; all studies for an empty name.

    Raises:
        NotFound: no study is in the group.
    """
    members = [view for view in views if group in ("", view.group)]
    if group and not members:
        groups = joined(sorted({view.group for view in views if view.group}), "none")
        raise NotFound(f"no study is in group {group!r}", hint=f"groups: {groups}")
    return members


def chosen(
    api: Api, study: str, since: str, now: datetime, group: str = ""
) -> tuple[Sequence[StudyView], datetime | None]:
    """Return one study, or all (of a group) that were active since a moment, and the moment.

    A study was active if it is not stopped, or was created or stopped since. Without `since` all studies
    are returned, and None as the moment.

    Raises:
        ConfigError: a study is given together with a moment or a group.
        InvalidInput: `since` is not a time.
        NotFound: the study does not exist, or the group has no study.
    """
    if study and since:
        raise ConfigError("both STUDY and --since are given", hint="give one")
    start = moment("--since", since, now)
    if study and group:
        raise ConfigError("both STUDY and --group are given", hint="give one")
    if study:
        return [api.study(study)], None
    views = of_group(api.studies(), group)
    return [view for view in views if start is None or _active(api, view, start)], start


def _active(api: Api, view: StudyView, start: datetime) -> bool:
    """Return whether a study was active since a moment."""
    if view.error or view.phase is not Phase.STOPPED or view.created_at >= start:
        return True
    return api.revisions(view.id)[-1].at >= start
