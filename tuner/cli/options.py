"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

STATE_DIR = Path(".jouletune")
"""Where `jouletune run` keeps its database, token, logs and what to resume."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TunerUrl = Annotated[
    str,
    typer.Option(
        "--tuner",
        metavar="URL",
        help="The tuner to ask (else $JOULETUNE_TUNER).",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file with the tuner's or an operator's bearer token (else $JOULETUNE_TOKEN_FILE).",
        show_default=False,
    ),
]
Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        help="A database to ask without a tuner (else $JOULETUNE_DB, else that of the last "
        "`jouletune run` in this folder).",
        show_default=False,
    ),
]
StudyId = Annotated[str, typer.Argument(metavar="STUDY", help="The study's id.")]
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason, kept with the revision.")
]

SafetyName = Literal["strict", "balanced", "off"]
"""`tuner.core.Safety`, spelt out: the vocabulary is not loaded for a help text."""
