"""`jouletune trial`: the trials of a study with their verdicts under the current constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from db.exports import as_csv, as_json, as_parquet
from db.history import HistoryRow
from tuner.cli import answers
from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import Limit, OfGroup, OfStudy, Since, StudyId, Until
from tuner.cli.output import write_text
from tuner.cli.study.choosing import of_group
from tuner.compat import StrEnum
from tuner.core import ConfigError, NotFound, StoreError, TrialState, Verdict, render_setting
from tuner.moments import when
from tuner.presentation.figures import change, duration, figure, joined, percent, shown
from tuner.presentation.texts import remark, requested_metrics
from tuner.study.moves import in_words
from tuner.verbs.questions import narrowed
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
        int | None, typer.Argument(metavar="NUMBER", help="The trial's number.")
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
        seconds = (trial.ended_at - trial.started_at).total_seconds()
        yield "ended", f"{when(trial.ended_at)} ({duration(seconds)})"
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


NO_TRIALS = "no trials yet, or none matches the filters"
"""Printed in place of an empty table, and on stderr beside an empty CSV."""


class Format(StrEnum):
    """The format of the history."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@with_api()
def history(
    api: Api,
    device: Annotated[str, typer.Option(metavar="ID", help="Only this device.")] = "",
    workload: Annotated[str, typer.Option(metavar="NAME", help="Only this workload.")] = "",
    study: OfStudy = "",
    group: OfGroup = "",
    since: Since = "",
    until: Until = "",
    verdict: Annotated[
        str, typer.Option(metavar="VERDICT", help="feasible, infeasible or unsure.")
    ] = "",
    state: Annotated[
        str, typer.Option(metavar="STATE", help="completed, failed, aborted, contaminated, …")
    ] = "",
    limit: Limit = None,
    format: Annotated[
        Format, typer.Option("--format", "-o", help="How to write it; wide: every column in full.")
    ] = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    as_json: bool = False,
) -> None:
    """Show the trials of all studies, in order of their start; the options filter them."""
    form = Format(answers.chosen(format, as_json))
    if form is Format.PARQUET and output is None:
        raise ConfigError("Parquet is not text", hint="name a file with --output FILE")
    listed = form in (Format.TABLE, Format.WIDE, Format.NAME)
    if listed and output is not None:
        raise ConfigError(
            f"--output does not take --format {form}", hint="give --format json, csv or parquet"
        )
    options = {
        "device": device,
        "workload": workload,
        "study": study,
        "group": group,
        "since": since,
        "until": until,
        "verdict": verdict,
        "state": state,
    }
    query = narrowed(None, {name: text for name, text in options.items() if text}, "--")
    rows = api.history(query) if limit is None else api.history(query, limit)[::-1]
    if group and not rows:
        of_group(api.studies(), group)  # refuses a group without studies
    if listed:
        answers.show(Answer(rows, _table(rows)), str(form), wider="-o wide")
        return
    _write(rows, form, output)


def _write(rows: Sequence[HistoryRow], form: Format, output: Path | None) -> None:
    """Write the rows as CSV, JSON or Parquet to a file or to stdout."""
    if form is Format.CSV and not rows:
        typer.echo(NO_TRIALS, err=True)
    if form is Format.PARQUET and output is not None:
        try:
            as_parquet(rows, output)
        except OSError as error:
            raise StoreError(
                f"cannot write {output}: {error.strerror}", hint="choose another --output"
            ) from None
    else:
        text = as_csv(rows) if form is Format.CSV else as_json(rows) + "\n"
        if output is None:
            typer.echo(text, nl=False)
            return
        write_text(output, text)
    typer.echo(f"{len(rows)} trials in {output}", err=True)


def _table(rows: Sequence[HistoryRow]) -> Rows:
    """Return the rows as a table for people, with at most three metrics."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    shown_metrics = [m for m in ("energy_j", "cpu_time_ms", "latency_p99_ms") if m in metrics]
    columns = shown_metrics or metrics[:2]
    first, *others = [f">{m}" for m in columns] or [">metric"]
    cells = [
        (
            f"{row.study}/{row.number}",
            result(row.state, row.verdict),
            *(shown(m, row.metrics) for m in columns or ("",)),
            render_setting(row.setting),
            when(row.started_at),
            joined(row.devices),
            str(row.phase),
            row.reason,
        )
        for row in rows
    ]
    heads = (
        "trial", "result", first, *(f"+{name}" for name in others), "~setting", "+started", "+device",
        "+phase", "+remark",
    )  # fmt: skip
    return Rows(heads, cells, NO_TRIALS)
