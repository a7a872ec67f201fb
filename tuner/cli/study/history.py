"""`jouletune history`: the trials of all studies, as table, JSON, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from db.exports import as_csv, as_json, as_parquet
from db.history import HistoryRow
from tuner.cli.answers import Answer, Rows, chosen, show
from tuner.cli.asking import Api, with_api
from tuner.cli.options import Limit, OfGroup, OfStudy, Since, Until
from tuner.cli.output import write_text
from tuner.cli.study.choosing import of_group
from tuner.cli.study.trial import result
from tuner.compat import StrEnum
from tuner.core import ConfigError, StoreError, render_setting
from tuner.moments import when
from tuner.presentation.figures import joined, shown
from tuner.verbs.questions import narrowed

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
    form = Format(chosen(format, as_json))
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
        show(Answer(rows, _table(rows)), str(form), wider="-o wide")
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
