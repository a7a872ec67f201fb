"""`jouletune evidence` and `jouletune verify`: an archive that proves a report, and its check."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import typer

from tuner import verify as checking
from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import AsJson, StudyId
from tuner.cli.output import echo_json
from tuner.core import StoreError


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
