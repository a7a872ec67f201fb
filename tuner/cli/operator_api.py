"""What a noun command talks to: a running tuner over HTTP, or the database itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from tuner.cli.options import STATE_DIR
from tuner.core import AuditEntry, ConfigError, Event

if TYPE_CHECKING:
    from db.history import HistoryQuestion, HistoryRow
    from tuner.client import Client
    from tuner.wire import (
        Change,
        ConstraintChange,
        Decision,
        DeviceView,
        ExplanationView,
        NewToken,
        ReplicaView,
        RevisionView,
        SettingView,
        StopView,
        StudyDraft,
        StudyReport,
        StudyView,
        TokenDraft,
        TokenView,
        TrialView,
    )

WAYS = "give --tuner URL, or --db URL, or run `jouletune run` in this folder first"


class TokenDesk(Protocol):
    """The admin's verbs on tokens. Each raises the family's errors."""

    def create(self, draft: TokenDraft) -> NewToken:
        """Make a token and return it, for the only time."""
        ...

    def tokens(self) -> Sequence[TokenView]:
        """Return all tokens by name."""
        ...

    def revoke(self, name: str) -> None:
        """Let a token count no more."""
        ...

    def audit(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) changes and refusals, oldest first."""
        ...


class OperatorApi(Protocol):
    """The operator's verbs, wherever they are carried out. Each raises the family's errors."""

    @property
    def access(self) -> TokenDesk:
        """The verbs on tokens."""
        ...

    def create(self, draft: StudyDraft) -> StudyView:
        """Create a study."""
        ...

    def studies(self) -> Sequence[StudyView]:
        """Return all studies, oldest first."""
        ...

    def study(self, study: str) -> StudyView:
        """Return one study."""
        ...

    def pause(self, study: str, change: Change) -> StudyView:
        """Stop trying for a while."""
        ...

    def resume(self, study: str, change: Change) -> StudyView:
        """Go on where a paused study was."""
        ...

    def stop(self, study: str, change: Change) -> StudyView:
        """End a study for good."""
        ...

    def approve(self, study: str, decision: Decision) -> StudyView:
        """Hold what a study proposes."""
        ...

    def reject(self, study: str, decision: Decision) -> StudyView:
        """End a study whose proposal is not wanted."""
        ...

    def delete(self, study: str, change: Change) -> None:
        """Remove a stopped study with everything it measured."""
        ...

    def set_constraints(self, study: str, change: ConstraintChange) -> StudyView:
        """Replace all constraints of a study."""
        ...

    def revisions(self, study: str) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        ...

    def trials(self, study: str) -> Sequence[TrialView]:
        """Return every trial of a study."""
        ...

    def best(self, study: str) -> SettingView:
        """Return the held or the best feasible setting."""
        ...

    def pareto(self, study: str) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        ...

    def report(self, study: str) -> StudyReport:
        """Return what a study gained and cost."""
        ...

    def explain(self, study: str) -> ExplanationView:
        """Return what a study's policy believes by its trials."""
        ...

    def devices(self) -> Sequence[DeviceView]:
        """Return all devices."""
        ...

    def replicas(self) -> Sequence[ReplicaView]:
        """Return the tuners of the database."""
        ...

    def forget(self, device: str, change: Change) -> None:
        """Forget a device that is offline and in no active study."""
        ...

    def stop_all(self, change: Change) -> StopView:
        """Put every device back to its original setting, until it is lifted."""
        ...

    def lift(self, change: Change) -> StopView:
        """Let the studies go on as they were before everything was stopped."""
        ...

    def stop_state(self) -> StopView:
        """Return whether everything is stopped, and which devices are back."""
        ...

    def history(self, question: HistoryQuestion, last: int | None = None) -> Sequence[HistoryRow]:
        """Return the trials a question asks for, across studies; or so many, the latest first."""
        ...

    def events(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events."""
        ...

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they come, from now on or after one; without an id: its study has changed."""
        ...


@dataclass(frozen=True)
class ApiAddress:
    """Where the operator's API is: a tuner's URL with its token file, or a database's URL."""

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
    """Return where to ask: what was given, else the environment, else the last run's database.

    Without `last_run` that does not count: nowhere is returned.

    Raises:
        ConfigError: both a tuner and a database are given, or nothing is to be found.
    """
    if tuner and db:
        raise ConfigError("both --tuner and --db are given", hint="give one of them")
    if not tuner and not db:
        tuner, db = environ.get("JOULETUNE_TUNER", ""), environ.get("JOULETUNE_DB", "")
        if tuner and db:
            raise ConfigError("both JOULETUNE_TUNER and JOULETUNE_DB are set", hint="unset one")
    if tuner:
        known = token_file or environ.get("JOULETUNE_TOKEN_FILE")
        return ApiAddress(tuner=tuner.rstrip("/"), token_file=Path(known) if known else None)
    if db or not last_run:
        return ApiAddress(db=db)
    return ApiAddress(db=_last_run(folder / STATE_DIR))


def _last_run(state_dir: Path) -> str:
    """Return the database of the last `jouletune run` of a folder."""
    from tuner.cli.runfile import read_run

    last = read_run(state_dir)
    if last is None:
        raise ConfigError("no tuner and no database given, and no run in this folder", hint=WAYS)
    return last.db


@contextmanager
def open_api(
    tuner: str, token_file: Path | None, db: str, *, quiet: bool = False
) -> Iterator[OperatorApi]:
    """Open the operator's API that the options, the environment or this folder name, and close it after.

    While every device is stopped that is said first, on stderr, unless it is to be `quiet`.

    Raises:
        ConfigError: the place is not given or cannot be read.
        LinkError, Unauthorised, StoreError: it does not answer, or not to us.
    """
    with _opened(place(tuner, token_file, db, os.environ, Path.cwd())) as api:
        if not quiet and (stop := api.stop_state()).in_force:
            from tuner.presentation.standing import stopped

            typer.echo(stopped(stop), err=True)
        yield api


@contextmanager
def _opened(where: ApiAddress) -> Iterator[OperatorApi]:
    if where.tuner:
        with reached(where) as remote:
            yield remote
    else:
        from tuner.main import local_operations

        with local_operations(where.db) as local:
            yield local


@contextmanager
def reached(where: ApiAddress) -> Iterator[Client]:
    """Open a tuner with the token and the authority that the options and the environment name."""
    from tuner.client import Client, read_token
    from tuner.tls import ClientTls

    ca = os.environ.get("JOULETUNE_CA_FILE")
    tls = ClientTls(ca=Path(ca) if ca else None)
    with Client(where.tuner, read_token(where.token_file), tls=tls) as remote:
        yield remote
