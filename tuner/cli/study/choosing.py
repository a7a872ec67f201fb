"""Which studies a report or an export is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuner.cli.asking import Api
from tuner.core import ConfigError, Phase
from tuner.moments import moment
from tuner.wire import StudyView


def chosen(
    api: Api, study: str, since: str, now: datetime
) -> tuple[Sequence[StudyView], datetime | None]:
    """Return one study, or all that were active since a moment, which comes with them.

    Active were those that are not stopped, or were made or stopped since. Without either it is all.

    Raises:
        ConfigError: both are given.
        InvalidInput: the moment is none.
        NotFound: there is no such study.
    """
    if study and since:
        raise ConfigError("both STUDY and --since are given", hint="give one")
    start = moment("--since", since, now)
    if study:
        return [api.study(study)], None
    return [view for view in api.studies() if start is None or _active(api, view, start)], start


def _active(api: Api, view: StudyView, start: datetime) -> bool:
    if view.error or view.phase is not Phase.STOPPED or view.created_at >= start:
        return True
    return api.revisions(view.id)[-1].at >= start
