"""`jouletune db`: back up, restore, check and prune a database."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from db import open_store, shown
from db.upkeep.backup import backup, restore
from db.upkeep.check import check
from db.upkeep.prune import Pruning
from tuner.cli.answers import Answer, Finding, checked, with_json
from tuner.cli.asking import place
from tuner.cli.options import AsJson, Db, Yes, confirm
from tuner.cli.output import echo_json
from tuner.core import ConfigError, Event
from tuner.main import utc_now
from tuner.moments import day


def _url(db: str) -> str:
    """Return the database URL of the option, else of the environment, else of the last run.

    Raises:
        ConfigError: no database is named; a tuner's address does not give its database.
    """
    hint = "give --db URL, the value of `db =` in tuner.toml"
    if own := db or os.environ.get("JOULETUNE_DB", ""):
        return own
    if os.environ.get("JOULETUNE_TUNER"):
        raise ConfigError("JOULETUNE_TUNER does not name a database", hint=hint)
    try:
        return place("", None, "", {}).db
    except ConfigError:
        raise ConfigError(
            "no database is given, and there is no run in this folder", hint=hint
        ) from None


def backup_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; an existing one is replaced.")
    ],
    db: Db = "",
) -> None:
    """Back up the database to a file while the tuner runs."""
    url = _url(db)
    backup(url, file)
    store = open_store(url, create=False)
    try:
        store.events.add(Event(at=utc_now(), kind="backed up", text=f"into {file.name}"))
    finally:
        store.close()
    typer.echo(f"{file}: {file.stat().st_size / 1e6:,.1f} MB from {shown(url)}")


def restore_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `jouletune db backup`.")],
    db: Db = "",
    yes: Yes = False,
) -> None:
    """Replace the database with a backup, completely or not at all. Stop the tuner first."""
    url = _url(db)
    confirm(f"replace {shown(url)} and lose everything stored since the backup?", yes)
    former = restore(url, file)
    note = f"; the former database is {former}" if former else ""
    typer.echo(f"restored from {file}{note}")


@with_json
def check_(db: Db = "") -> Answer:
    """Check the database: integrity, schema, last backup and free space."""
    url = _url(db)
    findings = check(url, utc_now)
    checks = checked(Finding(f.about, f.well, f.seen, f.hint) for f in findings)
    failed = not all(f.well or f.about == "last backup" for f in findings)
    return Answer(findings, [shown(url), *checks], failed)


def prune(
    db: Db = "",
    keep_days: Annotated[
        int, typer.Option(min=1, help="Keep hold windows and events of the last N days.")
    ] = 90,
    keep_stopped: Annotated[
        int | None,
        typer.Option(min=0, help="Keep only the latest N stopped studies. Default: all."),
    ] = None,
    vacuum: Annotated[
        bool,
        typer.Option(
            "--vacuum", help="Return free space to the disk; SQLite blocks writers meanwhile."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old events and hold windows; lists them first. Active studies keep every trial.

    The energy saved in deleted hold windows no longer counts in the bills of their studies.
    """
    url = _url(db)
    pruning = Pruning(url)
    try:
        plan = pruning.plan(utc_now() - timedelta(days=keep_days), keep_stopped)
        if not as_json:
            typer.echo(
                f"{shown(url)}: {plan.observations:,} hold windows and {plan.events:,} events from before "
                f"{day(plan.before)}, {len(plan.studies):,} stopped studies with {plan.trials:,} trials"
            )
        if delete := not dry_run and (vacuum or not plan.empty):
            confirm("delete them?", yes)
            pruning.carry_out(plan)
            if vacuum:
                pruning.vacuum()
        if as_json:
            echo_json({**asdict(plan), "deleted": delete})
        elif delete:
            typer.echo("deleted")
    finally:
        pruning.close()
