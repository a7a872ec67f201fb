"""`jouletune study wait`: until a study reaches a status, for scripts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import StudyId
from tuner.core import InvalidInput, Phase
from tuner.moments import seconds
from tuner.presentation.standing import status
from tuner.wire import StudyView

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
            show_default=False,
        ),
    ] = "",
    timeout: Annotated[
        str, typer.Option(metavar="LENGTH", help="The longest to wait, like 90s, 30m or 2h.")
    ] = "1h",
) -> Answer:
    """Wait until a study reaches a status.

    Exits with 0 once it does, with 1 once the study is stopped or paused instead, and with 124 after the
    timeout.
    """
    phases = ENDED if not for_ else (_phase(for_),)
    deadline = time.monotonic() + seconds("--timeout", timeout)
    while True:
        view = api.study(study)
        if view.phase in phases:
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
