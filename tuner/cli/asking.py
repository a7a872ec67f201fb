"""Verbs that call a running tuner over HTTP, or open the database itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Annotated

import typer

from tuner.cli.answers import JSON, LISTS, Verb, called, chosen, show, typed
from tuner.cli.options import STATE_DIR, Db, TokenFile, TunerUrl
from tuner.cli.output import console
from tuner.cli.reach import options_of, reaching
from tuner.cli.runfile import read_run
from tuner.client import Client, read_token
from tuner.core import ConfigError, Event, TuningError
from tuner.presentation.standing import stopped
from tuner.tls import ClientTls
from tuner.verbs.table import Verbs
from tuner.wire import StudyView

Api = Verbs[StudyView]
"""The API that a verb calls."""
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
    environ: Mapping[str, str] = os.environ,
    folder: Path | None = None,
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
    return ApiAddress(db=_last_run((folder or Path.cwd()) / STATE_DIR))


def _last_run(state_dir: Path) -> str:
    """Return the database of the last `jouletune run` in a state folder. Raises ConfigError."""
    last = read_run(state_dir)
    if last is None:
        raise ConfigError("no tuner, no database, and no run in this folder", hint=WAYS)
    return last.db


@contextmanager
def open_api(tuner: str, token_file: Path | None, db: str, *, quiet: bool = False) -> Iterator[Api]:
    """Open the operator's API that the options, the environment or this folder name; close it afterwards.

    If every device is stopped, a note on stderr reports it first, unless `quiet`.

    Raises:
        ConfigError: no address is given, or its file cannot be read.
        LinkError, Unauthorised, StoreError: it does not answer, or refuses the token.
    """
    with _opened(place(tuner, token_file, db)) as api:
        if not quiet and (stop := api.stop_state()).in_force:
            typer.echo(reaching(stopped(stop), options_of(tuner, token_file, db)), err=True)
        yield api


@contextmanager
def _opened(where: ApiAddress) -> Iterator[Api]:
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


PACE_S = 1.0
"""The shortest time between two redraws."""
LOOK_S = 10.0
"""The longest time between two redraws: a device that goes offline sends no event."""

Watch = Annotated[bool, typer.Option("--watch", help="Redraw after every change, until Ctrl-C.")]


def looks(api: Api, watch: bool) -> Iterator[None]:
    """Yield once, and with `watch` again after each change, on a cleared screen, without end."""
    yield
    if not watch:
        return
    screen, changes = console(), _changes(api)
    while True:
        _next(changes)
        time.sleep(PACE_S)
        while not changes.empty():
            _raised(changes.get())
        if screen.is_terminal:
            screen.clear()
        yield


def _changes(api: Api) -> Queue[Event | Exception]:
    """Return a queue that a thread fills with every event, and at last with the error that ends it."""
    changes: Queue[Event | Exception] = Queue()
    following = api.follow()

    def follow() -> None:
        try:
            for event in following:
                changes.put(event)
        except TuningError as error:  # raised again by the waiting caller
            changes.put(error)

    Thread(target=follow, name="follow", daemon=True).start()
    return changes


def _next(changes: Queue[Event | Exception]) -> None:
    """Wait for the next change, at most `LOOK_S`."""
    try:
        _raised(changes.get(timeout=LOOK_S))
    except Empty:
        return


def _raised(change: Event | Exception) -> None:
    """Raise a change that is an error."""
    if isinstance(change, Exception):
        raise change


def _option(name: str, annotation: object, default: object) -> Parameter:
    """Return a keyword-only parameter for Typer."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PLACE = (
    _option("tuner", TunerUrl, ""),
    _option("token_file", TokenFile, None),
    _option("db", Db, ""),
)
"""The options that name the tuner or the database, which every verb here has."""
WATCH = _option("watch", Watch, False)


def with_api(
    *more: Parameter, watch: bool = False, lists: bool = False, quiet: bool = False
) -> Callable[[Verb], Callable[..., None]]:
    """Add the API to a verb as its first argument, with `--tuner`, `--token-file`, `--db`, `--json`.

    `lists` adds `-o`. `watch` adds `--watch`, which repeats the verb after each change. With `quiet`
    the note that every device is stopped is not printed. `more` are further options, which a verb takes as
    `**given`.
    """

    def decorated(verb: Verb) -> Callable[..., None]:
        def asking(
            *, tuner: str, token_file: Path | None, db: str, as_json: bool, **given: object
        ) -> None:
            again = bool(given.pop("watch", False))
            form = chosen(str(given.pop("form", "table")), as_json)
            options = options_of(tuner, token_file, db)
            with open_api(tuner, token_file, db, quiet=quiet) as api:
                for _ in looks(api, again):
                    show(
                        called(verb, form == "json", given, api),
                        form,
                        options,
                        "-o wide" if lists else "--json",
                    )

        added = (*more, *([WATCH] if watch else []), *PLACE, *(LISTS if lists else [JSON]))
        return typed(asking, verb, added, skip=1)

    return decorated
