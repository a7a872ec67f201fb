"""Confirmation of commands that end or delete something."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tuner.core import ConfigError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm(question: str, yes: bool) -> None:
    """Return once the operator agrees: by `--yes`, or on the terminal.

    Raises:
        ConfigError: `--yes` is not given and stdin is not a terminal.
        Abort: the operator declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"not confirmed, because there is no terminal: {question!r}; nothing was changed",
            hint="add --yes to confirm",
        )
    typer.confirm(question, abort=True, err=True)
