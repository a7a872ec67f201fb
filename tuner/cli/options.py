"""Options that several commands share."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterator, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from policies import POLICIES
from tuner.bounds import MOST_SENTENCE
from tuner.config import holds_password
from tuner.core import Condition, ConfigError, Conflict, request_fields
from tuner.moments import FORMS

STATE_DIR = Path(".jouletune")
"""The folder of `jouletune run` for its database, token, logs and the record of the run."""


def without_password(
    context: typer.Context, option: typer.CallbackParam, url: str | None
) -> str | None:
    """Return a database URL; refuse one with a password, unless it comes from the environment.

    Raises:
        ConfigError: the URL on the command line has a password.
    """
    source = context.get_parameter_source(option.name or "")
    if not url or source is None or source.name != "COMMANDLINE":
        return url
    if holds_password(url):
        raise ConfigError(
            "a password on the command line can be read by every user of this machine",
            hint="move it to ~/.pgpass, or to a file that you name with ?passfile=FILE (chmod 600)",
        )
    return url


POLICY = f"The search policy: {', '.join(sorted(POLICIES))}, or one of an installed package."
FIELDS = {field.name: field for field in request_fields()}
"""The described fields of a request for a study."""


def option(name: str, hint: str = "") -> Any:  # noqa: ANN401  Typer's
    """Return the option of a field of a request; `hint` is added to its help."""
    field = FIELDS[name]
    text = POLICY if name == "policy" else field.about.help
    return typer.Option(
        field.option, metavar=field.about.unit or None, help=f"{text} {hint}".strip()
    )


def request_options() -> Iterator[Parameter]:
    """Yield the option of each described field of a request."""
    for field in FIELDS.values():
        named = bool(field.values) and field.kind is not bool
        kind: Any = Literal[tuple(field.values)] if named else field.kind
        marked: Any = Annotated[
            kind if field.default is not None else kind | None, option(field.name)
        ]
        default = str(field.default) if named else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=marked)


Constraints = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        metavar="TEXT",
        help='Like "latency_p99_ms <= 50" or "latency_p99_ms <= 1.2x baseline" (default: the latter); '
        "repeatable.",
    ),
]
NoConstraint = Annotated[bool, typer.Option("--no-constraint", help="Tune without any limit.")]


def user_name() -> str:
    """Return the user's name; the user's number if the password file has no entry."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def wished(constraints: Sequence[str] | None, none_wanted: bool) -> tuple[str, ...] | None:
    """Return the constraints of the options: None if no option is given, empty with --no-constraint.

    Raises:
        ConfigError: both options are given.
    """
    if constraints and none_wanted:
        raise ConfigError("both --constraint and --no-constraint are given", hint="give one")
    return () if none_wanted else tuple(constraints) if constraints else None


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ListFormat = Annotated[
    Literal["table", "wide", "json", "name"],
    typer.Option(
        "--format",
        "-o",
        metavar="FORM",
        help="table (columns that fit), wide (every column in full), json, or name (ids only).",
    ),
]
TunerUrl = Annotated[
    str,
    typer.Option(
        "--tuner",
        metavar="URL",
        help="The tuner (default $JOULETUNE_TUNER); $JOULETUNE_CA_FILE is its CA certificate.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the bearer token (default $JOULETUNE_TOKEN_FILE)."
    ),
]
Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        callback=without_password,
        help="Use this database without a tuner (default $JOULETUNE_DB, or the last `jouletune run` "
        "of this folder).",
    ),
]
DeviceId = Annotated[str, typer.Argument(metavar="ID", help="The device's id or a unique prefix.")]
StudyId = Annotated[str, typer.Argument(metavar="STUDY", help="The study's id or a unique prefix.")]
OfStudy = Annotated[
    str, typer.Option("--study", metavar="ID", help="Only this study: its id or a unique prefix.")
]
OneStudy = Annotated[
    str, typer.Argument(metavar="STUDY", help="Only this study: its id or a unique prefix.")
]
OfGroup = Annotated[
    str, typer.Option("--group", metavar="NAME", help="Only studies of this group of a fleet file.")
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help=f"Start time: {FORMS}; 2d is two days ago.")
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="End time, in the same forms.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Only the latest N.")
]


def whole(text: str) -> str:
    """Return a sentence that is short enough to be stored unshortened. Raises BadParameter."""
    if len(text) > MOST_SENTENCE:
        raise typer.BadParameter(
            f"it has {len(text)} characters, at most {MOST_SENTENCE} are allowed; shorten it"
        )
    return text


Why = Annotated[
    str,
    typer.Option(
        "--why", metavar="TEXT", callback=whole, help="The reason, stored with the revision."
    ),
]

ForeignShare = Annotated[
    float | None,
    typer.Option(
        "--foreign-share",
        metavar="X",
        min=0.01,
        max=1.0,
        help="Repeat windows in which other programs used more than this share of the machine (0.15).",
    ),
]

LoadTrace = Annotated[
    Path | None,
    typer.Option(
        "--load",
        metavar="FILE.csv",
        help="CSV of arrival times to replay (column arrival_s); overrides the load in the service's file.",
    ),
]

RunSafetyName = Literal["strict", "balanced", "off"]
"""Without `advise`: a run restores the device at its end."""


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm(question: str, yes: bool) -> None:
    """Return once the operator agrees: by `--yes`, or on the terminal.

    Raises:
        ConfigError: `--yes` is not given and stdin is not a terminal.
        Conflict: the operator declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"not confirmed, because there is no terminal: {question!r}; nothing was changed",
            hint="add --yes to confirm",
        )
    if not typer.confirm(question, err=True):
        raise Conflict("not confirmed; nothing was changed")


IF = re.compile(r"\sif(?:\s|$)")


def parted(text: str) -> tuple[str, Condition | None]:
    """Return the text of a knob's values, and its condition (None if it has none).

    Raises:
        InvalidInput: the condition cannot be read.
    """
    values, *conditions = IF.split(text, maxsplit=1)
    return values, Condition.parse(conditions[0]) if conditions else None
