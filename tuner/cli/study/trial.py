"""`jouletune trial list`: every trial of a study with its verdict as of now."""

from __future__ import annotations

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.cli.options import Limit, StudyId
from tuner.presentation.texts import asked_metrics, row
from tuner.study.moves import in_words


@asks(watch=True)
def list_(api: Api, study: StudyId, limit: Limit = None) -> Answer:
    """List the trials of a study, with their verdicts under today's constraints."""
    view, trials = api.study(study), api.trials(study)[-(limit or 0) :]
    metrics = asked_metrics(view)
    loads = ["at load"] if any(t.context for t in trials) else []
    columns = (
        ">#", "phase", "state", "verdict", *(f">{m}" for m in metrics), "setting", "remark", *loads,
        "why it was tried",
    )  # fmt: skip
    rows = ([*row(t, view, metrics), *(in_words(t.context) for _ in loads), t.why] for t in trials)
    return Answer(trials, Rows(columns, rows, f"study {view.id} has no trials yet"))
