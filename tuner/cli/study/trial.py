"""`jouletune trial list`: every trial of a study with its verdict under the current constraints."""

from __future__ import annotations

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.cli.options import Limit, StudyId
from tuner.core import TrialState, Verdict
from tuner.presentation.figures import change, shown
from tuner.presentation.texts import asked_metrics, remark
from tuner.study.moves import in_words
from tuner.wire import StudyView, TrialView


@asks(watch=True, lists=True)
def list_(api: Api, study: StudyId, limit: Limit = None) -> Answer:
    """List the trials of a study, one a line, judged by the current constraints."""
    view, trials = api.study(study), api.trials(study)[-(limit or 0) :]
    loads = ["~at load"] if any(t.context for t in trials) else []
    metrics = (f">{metric}" for metric in asked_metrics(view))
    columns = (
        ">#",
        "result",
        *metrics,
        "~setting",
        *loads,
        "+phase",
        "+remark",
        "+why it was tried",
    )
    rows = (_row(trial, view, bool(loads)) for trial in trials)
    return Answer(trials, Rows(columns, rows, f"study {view.id} has no trials yet"))


def _row(trial: TrialView, view: StudyView, loads: bool) -> tuple[str, ...]:
    return (
        str(trial.number),
        result(trial.state, trial.verdict, cut=trial.censored),
        *(shown(metric, trial.metrics, view.quantities) for metric in asked_metrics(view)),
        change(trial.setting, view.baseline.setting),
        *([in_words(trial.context)] if loads else []),
        str(trial.phase),
        remark(trial),
        trial.why,
    )


def result(state: TrialState, verdict: Verdict | None, *, cut: bool = False) -> str:
    """Return a completed trial's verdict, of any other its state; `cut` marks a shortened window."""
    word = str(verdict) if verdict is not None and state is TrialState.COMPLETED else str(state)
    return f"{word}, cut short" if cut else word
