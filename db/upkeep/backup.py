"""Backups of a database while a tuner uses it, and their restoration."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL, text

from db.sql.address import existing, read_url, shown
from db.sql.bus import TUNER_LOCK
from db.sql.database import Database
from db.sql.upgrade import bring_up, copy_database, refuse_unreadable, revision, written_whole
from tuner import files
from tuner.core import Conflict, InvalidInput, NotFound, StoreError

SQLITE, POSTGRES = b"SQLite format 3\0", b"PGDMP"
"""First bytes of a file: an SQLite database, and pg_dump's custom format."""
TAILS = ("-wal", "-shm")
"""Suffixes of SQLite's files beside a database: the write-ahead log and its index."""


def backup(url_text: str, file: Path) -> None:
    """Write a whole database to a file, which appears only once it is complete.

    Raises:
        ConfigError: the URL is wrong, or names no database.
        InvalidInput: the file is the database itself, or a database that a tuner uses.
        StoreError: the database does not answer or is damaged, or the file cannot be written.
    """
    url = existing(url_text)
    try:
        if _is_in_use(url, file):
            raise InvalidInput(
                f"{file} is the database itself or its log", hint="name another file"
            )
        with written_whole(file) as part:
            if url.get_backend_name() == "sqlite":
                copy_database(Path(url.database or ""), part)
            else:
                to = ["--format=custom", f"--file={part}", f"--dbname={_plain(url)}"]
                _pg("pg_dump", to, url)
    except OSError as error:
        raise StoreError(
            f"the backup {file} cannot be written: {error.strerror}", hint="name another file"
        ) from None


def _is_in_use(url: URL, file: Path) -> bool:
    """Return whether a file is the SQLite database to copy, one of its log files, or a tuner's database."""
    if url.get_backend_name() == "sqlite":
        database = Path(url.database or "").resolve()
        own = (database, *(database.with_name(database.name + tail) for tail in TAILS))
        if file.resolve() in own or any(
            p.exists() and file.exists() and p.samefile(file) for p in own
        ):
            return True
    return file.exists() and _is_held(file)


def _is_held(file: Path) -> bool:
    """Return whether a tuner uses a file as its database."""
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def restore(url_text: str, file: Path) -> Path | None:
    """Replace a database by a backup, whole or not at all; return the path of the former SQLite file.

    None if there was no such file. A PostgreSQL database must be empty or have the schema of the backup.

    Raises:
        ConfigError: the URL is wrong.
        Conflict: a tuner uses the database, or it has another schema.
        NotFound: the backup cannot be read.
        InvalidInput: the file is damaged, or no backup of this kind of database.
        StoreError: the backup is of a newer release or one before 0.2.0, or the database does not answer.
    """
    url = read_url(url_text)
    kind = POSTGRES if url.get_backend_name() == "postgresql" else SQLITE
    try:
        with file.open("rb") as opened:
            begins = opened.read(len(kind))
    except OSError as error:
        raise NotFound(
            f"cannot read the backup {file}: {error.strerror}", hint="give a readable file"
        ) from None
    if begins != kind:
        raise InvalidInput(
            f"{file} is not a backup of {shown(url)}", hint="name a file of `jouletune db backup`"
        )
    if kind == POSTGRES:
        _restore_postgres(url, file)
        return None
    return _restore_sqlite(Path(url.database or ""), file)


def _restore_sqlite(target: Path, file: Path) -> Path | None:
    """Check and upgrade a copy of the backup, keep the former file beside the target, and replace it."""
    if file.exists() and target.exists() and file.samefile(target):
        raise InvalidInput(f"{file} is the database itself", hint="name a backup")
    part = target.with_name(f"{target.name}.restoring")
    former = target.with_name(f"{target.name}.before-restore")
    try:
        part.unlink(missing_ok=True)
        files.make_private(part)
        shutil.copyfile(file, part)
        _prove(part, file)
        database = Database(read_url(f"sqlite:///{part}"))
        try:
            bring_up(database, create=False, keep=False)
        finally:
            database.engine.dispose()
        _end_wal(part)
        files.sync(part)
        with _alone(target):
            if target.exists():
                # SQLite would apply a leftover log to the restored database.
                _end_wal(target)
                former.unlink(missing_ok=True)
                former.hardlink_to(target)
            part.replace(target)
            files.sync(target.parent)
        return former if former.exists() else None
    except OSError as error:
        raise StoreError(f"{target} cannot be restored: {error.strerror}") from None
    finally:
        for left in (part, *(part.with_name(part.name + tail) for tail in TAILS)):
            with suppress(OSError):
                left.unlink()


def _restore_postgres(url: URL, file: Path) -> None:
    """Restore by pg_restore in one transaction, with tuners locked out, and upgrade the schema."""
    listed = ["--data-only", "--table=alembic_version", "--file=-", str(file)]
    of_backup = _copied_revision(_pg("pg_restore", listed, url))
    database = Database(url)
    try:
        with database.spoken(), database.engine.connect() as opened:
            # Autocommit: an open transaction would lock the tables read here against pg_restore.
            connection = opened.execution_options(isolation_level="AUTOCOMMIT")
            lock = text(f"SELECT pg_try_advisory_lock({TUNER_LOCK})")
            if not connection.scalar(lock):
                raise _at_work(shown(url))
            present = revision(connection)
            if present not in (None, of_backup):
                raise Conflict(
                    f"{shown(url)} has schema {present}, the backup {of_backup}",
                    hint="restore it into an empty database and set `db` to that database in tuner.toml",
                )
            refuse_unreadable(f"the backup {file}", of_backup)
            options = ["--clean", "--if-exists", "--no-owner", "--single-transaction"]
            _pg("pg_restore", [*options, f"--dbname={_plain(url)}", str(file)], url)
        bring_up(database, create=True)
    finally:
        database.engine.dispose()


def _prove(part: Path, file: Path) -> None:
    """Raise InvalidInput or StoreError unless a file is undamaged and has a supported schema."""
    try:
        with closing(sqlite3.connect(part)) as copy:
            integrity = copy.execute("PRAGMA integrity_check").fetchone()[0]
            schema = copy.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is not a backup or is damaged: {error}") from None
    if integrity != "ok":
        raise InvalidInput(f"the backup {file} is damaged: {integrity}", hint="use an older backup")
    if schema is None:
        raise InvalidInput(f"{file} is not a backup: it has no schema")
    refuse_unreadable(f"the backup {file}", schema[0])


def _at_work(name: str) -> Conflict:
    """Return the error for a database that a tuner uses."""
    return Conflict(f"a tuner is using {name}", hint="stop it and restore again")


def _end_wal(path: Path) -> None:
    """Merge the write-ahead log into its database and remove it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Lock tuners out of a database file. Raises Conflict if one uses it."""
    if not target.exists():
        yield
        return
    with target.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _at_work(str(target)) from None
        yield


def _plain(url: URL) -> str:
    """Return a URL for libpq's programs, without the password, which a list of processes would show."""
    return url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)


def _pg(program: str, options: Sequence[str], url: URL) -> str:
    """Run a program of PostgreSQL and return its output. Raises StoreError: it is missing or failed."""
    path = shutil.which(program)
    if path is None:
        raise StoreError(f"{program} is not installed", hint="apt install postgresql-client")
    environ = os.environ | ({"PGPASSWORD": str(url.password)} if url.password else {})
    ran = subprocess.run([path, *options], capture_output=True, text=True, env=environ, check=False)
    if ran.returncode != 0:
        last = next(iter(ran.stderr.strip().splitlines()[-1:]), f"it ended with {ran.returncode}")
        raise StoreError(f"{program} failed for {shown(url)}: {last}")
    return ran.stdout


def _copied_revision(dump: str) -> str:
    """Return the schema from pg_restore's text of the `alembic_version` table. Raises InvalidInput."""
    lines = iter(dump.splitlines())
    for line in lines:
        if line.startswith("COPY ") and "alembic_version" in line:
            return next(lines, "").strip()
    raise InvalidInput(
        "the backup has no jouletune schema", hint="name a file of `jouletune db backup`"
    )
