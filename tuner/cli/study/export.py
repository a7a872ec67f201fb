"""`jouletune export`: studies for the dashboards of MLflow and Optuna."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tuner import verify as checking
from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import AsJson, OneStudy, Since, StudyId, without_password
from tuner.cli.output import echo_json
from tuner.cli.study.choosing import chosen
from tuner.core import ConfigError, StoreError
from tuner.exports.mlflow import MlflowExport
from tuner.exports.optuna import OptunaExport
from tuner.exports.studies import ExportCount, ExportedStudy, shown_url
from tuner.presentation.figures import how_many


@with_api()
def mlflow(
    api: Api,
    study: OneStudy = "",
    since: Since = "",
    tracking_uri: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar="MLFLOW_TRACKING_URI",
            callback=without_password,
            help="MLflow's server or database, like http://127.0.0.1:5000.",
        ),
    ] = "",
    experiment: Annotated[
        str, typer.Option(metavar="NAME", help="The experiment; created if missing.")
    ] = "jouletune",
) -> Answer:
    """Export studies as MLflow runs with nested trials. Safe to re-run.

    Settings become parameters, measurements become metrics, all else becomes tags. A second export adds
    the trials that ended since.
    """
    if not tracking_uri:
        raise ConfigError(
            "no MLflow is given", hint="give --tracking-uri, or set MLFLOW_TRACKING_URI"
        )
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    # MLflow's default is to retry an unreachable server for four minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    where = f"{tracking_uri}, experiment {experiment}"
    to = partial(MlflowExport, tracking_uri, experiment)
    return _export(api, to, where, study, since)


@with_api()
def optuna(
    api: Api,
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            callback=without_password,
            help="Optuna's database, like sqlite:///optuna.db; created if missing.",
        ),
    ],
    study: OneStudy = "",
    since: Since = "",
) -> Answer:
    """Export studies to Optuna's storage, for optuna-dashboard. Safe to re-run.

    A second export adds the trials that ended since. If the constraints changed, it replaces the study,
    because Optuna cannot change an ended trial.
    """
    return _export(api, partial(OptunaExport, storage), storage, study, since)


def _export(
    api: Api, opened: Callable[[], MlflowExport | OptunaExport], where: str, study: str, since: str
) -> Answer:
    """Write the chosen studies and return the counts of trials.

    The destination is opened last, so that a refused request creates no database.
    """
    count, faults = ExportCount(), []
    views, _ = chosen(api, study, since, datetime.now(timezone.utc))
    knobs = {view.device.id: view.device.space.knobs for view in api.devices()}
    to = opened()
    logging.getLogger("optuna").setLevel(logging.WARNING)
    for view in views:
        try:
            exported = ExportedStudy(
                report=api.report(view.id),
                trials=tuple(api.trials(view.id)),
                knobs=knobs.get(next(iter(view.devices), ""), ()),
            )
        except (ConnectionError, StoreError):
            raise
        except Exception as error:  # one damaged study must not prevent the export of the others
            if study:
                raise
            faults.append(f"study {view.id} is left out: {error}")
            continue
        count += to.write(exported)
    counts = {name: count[name] for name in ("added", "changed", "known")}
    added, changed, same = counts.values()
    written = f"{how_many(added, 'trial')} added, {changed} changed, {same} as before"
    for fault in faults:
        typer.echo(fault, err=True)
    complete = len(views) - len(faults)
    summary = f"{how_many(complete, 'study', 'studies')} in {shown_url(where)}: {written}"
    return Answer({"studies": complete, "trials": counts, "left_out": faults}, summary)


@with_api()
def evidence(
    api: Api,
    study: StudyId,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The ZIP archive to write.")
    ],
) -> Answer:
    """Write an archive from which others compute a study's report again, without a tuner.

    It has no host, user or command; knobs, values and metrics are as you wrote them. The tuner's audit
    log has its digest.
    """
    made = api.evidence(study)
    try:
        output.write_bytes(base64.b64decode(made.content))
    except OSError as error:
        raise StoreError(
            f"cannot write {output}: {error.strerror}", hint="name another file"
        ) from None
    shown = {"study": made.study, "sha256": made.sha256, "file": str(output)}
    return Answer(shown, f"{output}: evidence of study {made.study}, sha256 {made.sha256}")


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive of `evidence`.")],
    as_json: AsJson = False,
) -> None:
    """Check an archive of evidence: it computes the report's figures again from its windows.

    It exits with 1 if something contradicts. It is the verify.py of this release.
    """
    if not as_json:
        raise typer.Exit(checking.main([str(file)]))
    read = checking.Archive(str(file))
    echo_json(
        {
            "figures": read.same,
            "contradictions": read.wrong,
            "refused": read.refused,
            "not_computed": [*dict.fromkeys(read.beyond)],
        }
    )
    raise typer.Exit(1 if read.wrong else 0)
