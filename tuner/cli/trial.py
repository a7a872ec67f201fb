"""`jouletune trial list`: every trial of a study with its verdict as of now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from tuner.cli.options import AsJson, Db, Limit, StudyId, TokenFile, TunerUrl
from tuner.cli.watching import Watch, looks

if TYPE_CHECKING:
    from tuner.wire import StudyView, TrialView

commands = typer.Typer()


@commands.command("list")
def list_(
    study: StudyId,
    limit: Limit = None,
    watch: Watch = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List the trials of a study, with their verdicts under today's constraints."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json

    with open_api(tuner, token_file, db) as api:
        for _ in looks(api, watch):
            view, trials = api.study(study), api.trials(study)[-(limit or 0) :]
            if as_json:
                echo_json(trials)
            else:
                _print(view, trials)


def _print(view: StudyView, trials: Sequence[TrialView]) -> None:
    from tuner.cli.output import echo_table
    from tuner.presentation.texts import asked_metrics, row
    from tuner.study.moves import in_words

    metrics = asked_metrics(view)
    loads = ["at load"] if any(t.context for t in trials) else []
    echo_table(
        ">#", "phase", "state", "verdict", *(f">{m}" for m in metrics), "setting", "remark", *loads,
        "why it was tried",
        rows=([*row(t, view, metrics), *(in_words(t.context) for _ in loads), t.why] for t in trials),
        nothing=f"study {view.id} has no trials yet",
    )  # fmt: skip
