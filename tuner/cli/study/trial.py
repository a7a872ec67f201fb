"""`jouletune trial`: the trials of a study with their verdicts under the current constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import Limit, StudyId
from tuner.core import ConfigError, NotFound, TrialState, Verdict, render_setting
from tuner.moments import when
from tuner.presentation.figures import change, duration, figure, joined, percent, shown
from tuner.presentation.texts import remark, requested_metrics
from tuner.study.moves import in_words
from tuner.wire import StudyView, TrialView


@with_api(watch=True, lists=True)
def list_(api: Api, study: StudyId, limit: Limit = None) -> Answer:
    """List the trials of a study, one a line, judged by the current constraints."""
    view, trials = api.study(study), api.trials(study)[-(limit or 0) :]
    loads = ["~at load"] if any(t.context for t in trials) else []
    metrics = (f">{metric}" for metric in requested_metrics(view))
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


@with_api()
def show(
    api: Api,
    study: Annotated[
        str, typer.Argument(metavar="STUDY[/NUMBER]", help="The study, or study/trial.")
    ],
    number: Annotated[
        int | None,
        typer.Argument(metavar="NUMBER", help="The trial's number.", show_default=False),
    ] = None,
) -> Answer:
    """Show one trial: setting, metrics, verdict and reason."""
    name, _, inner = study.partition("/")
    if number is None and inner.isdecimal():
        number = int(inner)
    if number is None:
        raise ConfigError("no trial number is given", hint="write STUDY NUMBER, like 3f2a91c0 7")
    view, trials = api.study(name), api.trials(name)
    trial = next((one for one in trials if one.number == number), None)
    if trial is None:
        raise NotFound(
            f"study {view.id} has no trial {number}",
            hint=f"`jouletune trial list {view.id}` has its trials",
        )
    return Answer(trial, [f"{name:<12}{text}" for name, text in _facts(trial, view)])


def _facts(trial: TrialView, view: StudyView) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each line of `trial show`."""
    yield "trial", f"{trial.number} of study {view.id}, attempt {trial.attempt}"
    yield "device", trial.device or joined(view.devices)
    yield "result", result(trial.state, trial.verdict, cut=trial.censored)
    yield "reason", trial.reason or "–"
    yield "setting", render_setting(trial.setting)
    if trial.context:
        yield "load", in_words(trial.context)
    yield "chosen for", f"{trial.phase}: {trial.why}" if trial.why else str(trial.phase)
    yield "started", when(trial.started_at)
    if trial.ended_at is not None:
        yield "ended", f"{when(trial.ended_at)} ({duration(_seconds(trial))})"
    for metric in trial.metrics:
        yield "metric", f"{metric} {shown(metric, trial.metrics, view.quantities)}"
    for limit in view.limits:
        value = figure(limit.metric, limit.value, declared=view.quantities)
        yield "limit", f"{limit.metric} {limit.op} {value}"
    if trial.foreign:
        yield "other load", f"{percent(trial.foreign)} of the machine was used by other processes"
    if trial.throttled:
        yield "throttled", joined(trial.throttled)
    for subject, text in trial.notes.items():
        yield "note", f"{subject}: {text}"


def _seconds(trial: TrialView) -> float:
    """Return the duration of an ended trial, 0 while it runs."""
    return (trial.ended_at - trial.started_at).total_seconds() if trial.ended_at else 0.0


def _row(trial: TrialView, view: StudyView, loads: bool) -> tuple[str, ...]:
    """Return a trial as a row of `trial list`."""
    return (
        str(trial.number),
        result(trial.state, trial.verdict, cut=trial.censored),
        *(shown(metric, trial.metrics, view.quantities) for metric in requested_metrics(view)),
        change(trial.setting, view.baseline.setting),
        *([in_words(trial.context)] if loads else []),
        str(trial.phase),
        remark(trial),
        trial.why,
    )


def result(state: TrialState, verdict: Verdict | None, *, cut: bool = False) -> str:
    """Return a completed trial's verdict, else its state; `cut` marks a shortened window."""
    word = str(verdict) if verdict is not None and state is TrialState.COMPLETED else str(state)
    return f"{word}, cut short" if cut else word
