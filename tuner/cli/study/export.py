"""`jouletune export mlflow`, `evidence` and `verify`: studies for others."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from datetime import datetime, timezone
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
from tuner.exports.mlflow import ExportCount, ExportedStudy, MlflowExport, shown_url
from tuner.presentation.figures import how_many
from tuner.wire import StudyView


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
    # Opened last, so that a refused request creates no database.
    views, _ = chosen(api, study, since, datetime.now(timezone.utc))
    count, faults = _export(api, MlflowExport(tracking_uri, experiment), views, bool(study))
    for fault in faults:
        typer.echo(fault, err=True)
    counts = {name: count[name] for name in ("added", "changed", "known")}
    added, changed, same = counts.values()
    complete = len(views) - len(faults)
    summary = (
        f"{how_many(complete, 'study', 'studies')} in {shown_url(tracking_uri)}, experiment {experiment}: "
        f"{how_many(added, 'trial')} added, {changed} changed, {same} as before"
    )
    return Answer({"studies": complete, "trials": counts, "left_out": faults}, summary)


def _export(
    api: Api, to: MlflowExport, views: Sequence[StudyView], only_one: bool
) -> tuple[ExportCount, list[str]]:
    """Write studies; return the counts of trials, and the studies that cannot be read.

    One damaged study does not prevent the export of the others; the error of the `only_one` is raised.
    """
    count, faults = ExportCount(), list[str]()
    for view in views:
        try:
            exported = ExportedStudy(report=api.report(view.id), trials=tuple(api.trials(view.id)))
        except (ConnectionError, StoreError):
            raise
        except Exception as error:
            if only_one:
                raise
            faults.append(f"study {view.id} is left out: {error}")
            continue
        count += to.write(exported)
    return count, faults


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
