"""`jouletune report`: savings and costs of studies, as text, Markdown or an HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner import files
from tuner.cli import answers
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfGroup, OneStudy
from tuner.cli.output import Plain, console, json_text, list_width, listing, plain, write_text
from tuner.cli.output import lines as list_lines
from tuner.cli.study.choosing import chosen
from tuner.compat import StrEnum
from tuner.core import StoreError, TuningError
from tuner.moments import moment, when
from tuner.presentation import documents
from tuner.presentation.documents import (
    COLUMNS,
    MOST_DRAWN,
    ReportedStudy,
    drawn,
    overview,
    summed,
    svg,
)
from tuner.presentation.figures import how_many, joined
from tuner.presentation.reports import about, account, comparison, provenance, verdict
from tuner.presentation.standing import StudyOutcome
from tuner.wire import StudyView


def document(main: StudyOutcome) -> dict[str, Plain]:
    """Return the report of a study, the reason for its outcome, and every trial."""
    report = plain(main.report)
    assert isinstance(report, dict)
    return {
        **report,
        "saving_percent": saving_percent(main),
        "why": main.why,
        "proposed": main.proposed,
        "won": main.won,
        "trials": plain(main.trials),
    }


def saving_percent(main: StudyOutcome) -> float | None:
    """Return the saving in percent, as earlier releases reported it; `saving` also has its error."""
    saving = main.report.saving
    return None if saving is None else 100.0 * saving.mean


OTHERS_USED = "other processes used"
"""Text in the reason of a discarded window: see `agents.target.measure`."""
ALLOW_OTHERS = (
    "stop the other programs, or allow them any share of the machine: --foreign-share 1.0"
)


def refuse_untuned(main: StudyOutcome, reach: str = "") -> None:
    """Return unless a study tuned nothing, which must not exit with 0 in a script.

    `reach` is the option for its database. Raises TuningError with the reason.
    """
    view = main.report.study
    if not main.tuned:
        foreign = any(OTHERS_USED in trial.reason for trial in main.trials)
        raise TuningError(
            f"nothing could be tuned on {view.devices[0]}: {main.why}",
            hint=f"`jouletune trial list {view.id}{reach}` has the trials"
            + (f"; {ALLOW_OTHERS}" if foreign else ""),
        )


def print_outcome(
    console: Console,
    main: StudyOutcome,
    board: str = "",
    beside: Iterable[str] = (),
    lacking: Iterable[str] = (),
) -> None:
    """Print the saving and cost of a study, the lines `beside` after the bill, and `lacking` last."""
    view = main.report.study
    console.print()
    title = f"Study {view.id}: {view.workload} on {board or joined(view.devices)}"
    console.print(title, style="bold", soft_wrap=True)
    console.print(f"  {about(main)}", soft_wrap=True)
    rows = list(comparison(main))
    if rows:
        for line in list_lines(("", ">baseline", ">best", ">change"), rows):
            console.print(f"  {line}", soft_wrap=True)
    lines = (*verdict(main), *account(main), *beside, *provenance(main.report), *lacking)
    for text in lines:
        console.print(f"  {text}", soft_wrap=True)


SINCE = "7d"
MARKS = {
    "device": "+=device",
    "workload": "+workload",
    "status": "~status",
    ">trials": "+>trials",
    "setting": "~setting",
}
"""Marks of the overview's columns for narrow terminals: see `tuner.cli.output`."""


class ReportFormat(StrEnum):
    """The format of a report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "md"
    HTML = "html"


@with_api()
def report(
    api: Api,
    study: OneStudy = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help=f"Savings since this time, like 2d or 2026-11-01; without STUDY, of the studies active "
            f"since then ({SINCE}).",
        ),
    ] = "",
    group: OfGroup = "",
    format: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            "-o",
            help="text, json, md (with picture files beside it) or html (one file).",
        ),
    ] = ReportFormat.TEXT,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    as_json: bool = False,
) -> None:
    """Report the savings of studies, their basis, and the cost of exploring.

    Without STUDY: all studies that were active in the last 7 days, or since `--since`.
    """
    form = ReportFormat(answers.chosen(format, as_json, ReportFormat.TEXT))
    now = datetime.now(timezone.utc)
    start = moment("--since", since or ("" if study else SINCE), now)
    views, _ = chosen(api, study, "" if study else since or SINCE, now, group)
    reported, faults = _all_reported(api, views, start)
    of = f" of group {group}" if group else ""
    heading = f"Study {views[0].id}" if study else f"Studies{of}"
    heading += f" since {when(start)}" if start is not None else ""
    _write(reported, faults, heading, now, form, output)


def _all_reported(
    api: Api, views: Sequence[StudyView], since: datetime | None
) -> tuple[list[ReportedStudy], list[str]]:
    """Return the studies that can be reported, and a message for each other study.

    Raises:
        TuningError: the only study cannot be reported, or the tuner does not answer.
    """
    reported, faults = [], []
    for view in views:
        try:
            reported.append(_reported(api, view, since))
        except (ConnectionError, StoreError):
            raise
        except Exception as error:
            if len(views) == 1:
                raise
            faults.append(f"Study {view.id} cannot be reported: {error}")
    return reported, faults


def outcome_of(api: Api, view: StudyView, since: datetime | None = None) -> StudyOutcome:
    """Return a study's report with its reasons and trials."""
    report, revisions = api.report(view.id, since), api.revisions(view.id)
    return StudyOutcome.of(report, revisions, api.trials(view.id))


def _reported(api: Api, view: StudyView, since: datetime | None) -> ReportedStudy:
    """Return a study's report, history and Pareto front."""
    outcome = outcome_of(api, view, since)
    period = outcome.report.bill.periods[0] if since is not None else None
    return ReportedStudy(outcome=outcome, front=tuple(api.pareto(view.id)), period=period)


def _write(
    reported: Sequence[ReportedStudy],
    faults: Sequence[str],
    heading: str,
    at: datetime,
    format: ReportFormat,
    output: Path | None,
) -> None:
    """Write the report; either all of its files or none.

    Raises:
        ConfigError: a package that draws it is not installed.
        StoreError: a file cannot be written.
    """
    pictures: dict[str, str] = {}
    if format is ReportFormat.TEXT:
        text = _as_text(reported, faults, heading)
    elif format is ReportFormat.JSON:
        outcomes = [document(one.outcome) for one in reported]
        every = {"studies": outcomes, "not_reported": faults}
        text = json_text(outcomes[0] if len(outcomes) == 1 and not faults else every) + "\n"
    elif format is ReportFormat.HTML:
        text = documents.html(reported, faults, heading, at)
    else:
        pictures = _pictures(reported) if output is not None else {}
        names = {} if output is None else {one: _beside(output, one).name for one in pictures}
        text = documents.markdown(reported, faults, heading, at, names)
        if output is None and reported:
            typer.echo("no pictures without --output FILE", err=True)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    _write_all({_beside(output, one): svg for one, svg in pictures.items()} | {output: text})
    beside = f", {how_many(len(pictures), 'picture')} beside it" if pictures else ""
    typer.echo(f"{how_many(len(reported), 'study', 'studies')} in {output}{beside}", err=True)


def _as_text(reported: Sequence[ReportedStudy], faults: Sequence[str], heading: str) -> str:
    out = io.StringIO()
    page = Console(file=out, width=console().width, markup=False, highlight=False)
    for line in (f"{heading}: {summed(reported)}", *faults):
        page.print(line, soft_wrap=True)
    if len(reported) > 1:
        names = [MARKS.get(name, name) for name in COLUMNS]
        made = listing(names, overview(reported), list_width())
        for line in (made.head, *made.body):
            page.print(line, soft_wrap=True)
        if made.hidden:
            page.print(f"{how_many(made.hidden, 'column')} hidden: --format html")
    if len(reported) > MOST_DRAWN:
        page.print("details of a study: `jouletune report STUDY`, or all: --format html")
        return out.getvalue()
    for one in reported:
        print_outcome(page, one.outcome)
    return out.getvalue()


def _pictures(reported: Sequence[ReportedStudy]) -> dict[str, str]:
    """Return an SVG for each study with measurements."""
    charts = {one.id: next(iter(one.charts().values()), None) for one in reported}
    titles = {one.id: one.title for one in reported}
    return {id: svg(drawn(c, titles[id])) for id, c in charts.items() if c is not None}


def _beside(output: Path, study: str) -> Path:
    """Return the path of a study's picture beside the report."""
    return output.with_name(f"{output.stem}-{study}.svg")


def _write_all(texts: dict[Path, str]) -> None:
    """Write files; if one fails, remove those that this call created. Raises StoreError."""
    written: list[Path] = []
    for path, text in texts.items():
        new = not path.exists()
        try:
            write_text(path, text)
        except StoreError:
            for one in written:
                files.remove(one)
            raise
        written += [path] if new else []
