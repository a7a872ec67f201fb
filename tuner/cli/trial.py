"""`jouletune trial list`: every trial of a study with its verdict as of now."""

from __future__ import annotations

import typer

from tuner.cli.options import AsJson, Db, StudyId, TokenFile, TunerUrl

commands = typer.Typer(help="List the trials of a study.")


@commands.callback()
def nouns() -> None:
    """List the trials of a study."""


@commands.command("list")
def list_(
    study: StudyId,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List every trial of a study, with its verdict under today's constraints."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import TABLE_WIDTH, console, echo_json, echo_table
    from tuner.cli.texts import asked_metrics, line, row
    from tuner.study.moves import in_words

    with open_api(tuner, token_file, db) as api:
        view = api.study(study)
        trials = api.trials(study)
    if as_json:
        echo_json(trials)
        return
    if trials and console().width < TABLE_WIDTH:
        for trial in trials:
            typer.echo(f"{line(trial, view)} ({trial.why})")
        return
    metrics = asked_metrics(view)
    loads = ["at load"] if any(t.context for t in trials) else []
    echo_table(
        ">#", "phase", "state", "verdict", *(f">{m}" for m in metrics), "setting", "remark", *loads,
        "why it was tried",
        rows=([*row(t, view, metrics), *(in_words(t.context) for _ in loads), t.why] for t in trials),
        nothing=f"study {study} has no trials yet",
    )  # fmt: skip
