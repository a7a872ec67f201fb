"""The place that verbs work on: a running tuner over HTTP, or a database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tuner.cli.options import STATE_DIR
from tuner.cli.reach import options_of, reaching
from tuner.cli.runfile import read_run
from tuner.client import Client, read_token
from tuner.core import ConfigError
from tuner.presentation.standing import stopped
from tuner.tls import ClientTls

if TYPE_CHECKING:
    from tuner.verbs.table import Verbs
    from tuner.wire import StudyView

WAYS = "give --tuner URL, or --db URL, or run `jouletune run` in this folder first"


@dataclass(frozen=True)
class ApiAddress:
    """The address of the operator's API: a tuner's URL with its token file, or a database's URL."""

    tuner: str = ""
    token_file: Path | None = None
    db: str = ""


def place(
    tuner: str,
    token_file: Path | None,
    db: str,
    environ: Mapping[str, str],
    folder: Path,
    *,
    last_run: bool = True,
) -> ApiAddress:
    """Return the address from the options, else from the environment, else the last run's database.

    Without `last_run` the address may be empty.

    Raises:
        ConfigError: both a tuner and a database are given, or neither, and there was no run.
    """
    if tuner and db:
        raise ConfigError("both --tuner and --db are given", hint="give one of them")
    if not tuner and not db:
        tuner, db = environ.get("JOULETUNE_TUNER", ""), environ.get("JOULETUNE_DB", "")
        if tuner and db:
            raise ConfigError("both JOULETUNE_TUNER and JOULETUNE_DB are set", hint="unset one")
    if tuner:
        file = token_file or environ.get("JOULETUNE_TOKEN_FILE")
        return ApiAddress(tuner=tuner.rstrip("/"), token_file=Path(file) if file else None)
    if db or not last_run:
        return ApiAddress(db=db)
    return ApiAddress(db=_last_run(folder / STATE_DIR))


def _last_run(state_dir: Path) -> str:
    """Return the database of the last `jouletune run` in a state folder. Raises ConfigError."""
    last = read_run(state_dir)
    if last is None:
        raise ConfigError("no tuner, no database, and no run in this folder", hint=WAYS)
    return last.db


@contextmanager
def open_api(
    tuner: str, token_file: Path | None, db: str, *, quiet: bool = False
) -> Iterator[Verbs[StudyView]]:
    """Open the operator's API that the options, the environment or this folder name; close it afterwards.

    If every device is stopped, a note on stderr reports it first, unless `quiet`.

    Raises:
        ConfigError: no address is given, or its file cannot be read.
        LinkError, Unauthorised, StoreError: it does not answer, or refuses the token.
    """
    with _opened(place(tuner, token_file, db, os.environ, Path.cwd())) as api:
        if not quiet and (stop := api.stop_state()).in_force:
            typer.echo(reaching(stopped(stop), options_of(tuner, token_file, db)), err=True)
        yield api


@contextmanager
def _opened(where: ApiAddress) -> Iterator[Verbs[StudyView]]:
    """Open the API of an address: over HTTP, or on the database itself."""
    if where.tuner:
        with reached(where) as remote:
            yield remote
    else:
        # Imported here: a client over HTTP may not have the tuner's packages.
        from tuner.main import local_operations

        with local_operations(where.db) as local:
            yield local


@contextmanager
def reached(where: ApiAddress) -> Iterator[Client]:
    """Open a client of a tuner with the token and the CA certificate of options and environment."""
    ca = os.environ.get("JOULETUNE_CA_FILE")
    tls = ClientTls(ca=Path(ca) if ca else None)
    with Client(where.tuner, read_token(where.token_file), tls=tls) as remote:
        yield remote
