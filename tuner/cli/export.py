"""`jouletune export`: studies for the dashboards of MLflow and Optuna."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from tuner.cli.choosing import OneStudy
from tuner.cli.moments import Since
from tuner.cli.options import Db, TokenFile, TunerUrl, without_password

if TYPE_CHECKING:
    from tuner.exports.studies import ExportCount, ExportedStudy

commands = typer.Typer()


class Destination(Protocol):
    """Where studies go."""

    def write(self, study: ExportedStudy) -> ExportCount:
        """Write a study, adding what is not there yet. Raises StoreError."""
        ...


@commands.command()
def mlflow(
    study: OneStudy = "",
    since: Since = "",
    tracking_uri: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar="MLFLOW_TRACKING_URI",
            callback=without_password,
            help="MLflow's server or database, like http://127.0.0.1:5000.",
            show_default=False,
        ),
    ] = "",
    experiment: Annotated[
        str, typer.Option(metavar="NAME", help="The experiment; made where it is missing.")
    ] = "jouletune",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
) -> None:
    """Write studies as runs of MLflow, their trials nested in them.

    Settings become parameters, what was measured metrics, the rest tags. Repeated, it adds the trials that
    ended since.
    """
    import os

    from tuner.core import ConfigError
    from tuner.exports.mlflow import MlflowExport

    if not tracking_uri:
        raise ConfigError(
            "no MLflow is given", hint="give --tracking-uri, or set MLFLOW_TRACKING_URI"
        )
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    # By itself MLflow tries for four minutes to reach a server that is not there.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    where = f"{tracking_uri}, experiment {experiment}"
    to = partial(MlflowExport, tracking_uri, experiment)
    _export(to, where, study, since, tuner, token_file, db)


@commands.command()
def optuna(
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            callback=without_password,
            help="Optuna's database, like sqlite:///optuna.db; made where it is missing.",
        ),
    ],
    study: OneStudy = "",
    since: Since = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
) -> None:
    """Write studies into Optuna's storage, for optuna-dashboard.

    Repeated, it adds the trials that ended since; after a change of the constraints it writes the study
    anew, for Optuna changes no trial that has ended.
    """
    from tuner.exports.optuna import OptunaExport

    _export(partial(OptunaExport, storage), storage, study, since, tuner, token_file, db)


def _export(
    opened: Callable[[], Destination],
    where: str,
    study: str,
    since: str,
    tuner: str,
    token_file: Path | None,
    db: str,
) -> None:
    """Write the studies that were chosen, and say how many trials are there now.

    Where they go is opened last: what was asked for wrongly makes no database.
    """
    import logging
    from datetime import datetime, timezone

    from tuner.cli.choosing import chosen
    from tuner.cli.operator_api import open_api
    from tuner.core import StoreError
    from tuner.exports.studies import ExportCount, ExportedStudy, shown_url
    from tuner.presentation.figures import how_many

    count, faults = ExportCount(), []
    with open_api(tuner, token_file, db) as api:
        views, _ = chosen(api, study, since, datetime.now(timezone.utc))
        knobs = {view.device.id: view.device.space.knobs for view in api.devices()}
        to = opened()
        logging.getLogger("optuna").setLevel(logging.WARNING)
        for view in views:
            try:
                found = ExportedStudy(
                    report=api.report(view.id),
                    trials=tuple(api.trials(view.id)),
                    knobs=knobs.get(next(iter(view.devices), ""), ()),
                )
            except (ConnectionError, StoreError):
                raise
            except Exception as error:  # one bad study must not keep the others here
                if study:
                    raise
                faults.append(f"study {view.id} is left out: {error}")
                continue
            count += to.write(found)
    written = (
        f"{how_many(count.added, 'trial')} added, {count.changed} changed, {count.known} as before"
    )
    for fault in faults:
        typer.echo(fault, err=True)
    written_studies = len(views) - len(faults)
    typer.echo(f"{how_many(written_studies, 'study', 'studies')} in {shown_url(where)}: {written}")
