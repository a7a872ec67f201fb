"""Checks of a database: whether it is undamaged and has free space, each with a next step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, text

from db import SCHEMA
from db.schema import EventRow
from db.sql.address import command, existing, shown
from db.sql.database import Database
from db.sql.studies import Studies
from db.sql.upgrade import refuse_unreadable, revision
from tuner.core import Now, StoreError, UnreadableStudy

LEAST_FREE_BYTES = 1 << 30
MOST_DAYS = 7.0
MOST_NAMED = 8
QUESTIONS = {
    "trial numbers are consecutive": "SELECT count(*) FROM studies s WHERE s.last_trial <> "
    "(SELECT coalesce(max(t.number), 0) FROM trials t WHERE t.study_id = s.id) OR s.last_trial <> "
    "(SELECT count(*) FROM trials t WHERE t.study_id = s.id)",
    "every ended trial has an end time": "SELECT count(*) FROM trials WHERE ended_at IS NULL AND state "
    "NOT IN ('pending', 'running')",
    "every study has its current revision": "SELECT count(*) FROM studies s WHERE NOT EXISTS (SELECT "
    "1 FROM study_revisions r WHERE r.study_id = s.id AND r.revision = s.revision)",
    "no device has two active studies": "SELECT count(*) FROM (SELECT device_id FROM study_devices WHERE "
    "active GROUP BY device_id HAVING count(*) > 1) AS twice",
}
"""Counts of violations; each must be 0, after any write and any crash."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one check. `hint` is the next step if `well` is False."""

    about: str
    well: bool
    seen: str
    hint: str = ""


def check(url_text: str, now: Now) -> list[Checked]:
    """Return the results of all checks of a database; it is not changed.

    A database of another schema is checked for its schema and free space only.

    Raises:
        ConfigError: the URL is wrong.
        StoreError: the database does not exist or does not answer.
    """
    url = existing(url_text)
    restore = f"stop the tuner and restore a backup: {command('restore FILE', shown(url))}"
    again = f"{command('backup FILE', shown(url))}, once a day"
    path = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    database = Database(url)
    try:
        with database.spoken(), database.engine.connect() as connection:
            schema = revision(connection)
            current = schema == SCHEMA
            hint = "" if current else "start a tuner of this release on it"
            try:
                refuse_unreadable(shown(url), schema or SCHEMA)
            except StoreError as error:
                hint = error.hint
            checks = [Checked("schema", current, f"{schema}, this program's is {SCHEMA}", hint)]
            if current:
                checks += [
                    *_whole(connection, path, restore),
                    _readable(Studies(database), restore),
                    _kept(connection),
                    _backed_up(connection, now, again),
                ]
            return [*checks, *_room(path, command("prune --vacuum", shown(url)))]
    finally:
        database.engine.dispose()


def _whole(connection: Connection, path: Path | None, restore: str) -> Iterator[Checked]:
    """Yield the checks of the SQLite file, its foreign keys, and `QUESTIONS`."""
    if path is not None:
        state = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
        yield Checked("file", state == "ok", str(state), "" if state == "ok" else restore)
        broken = len(connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall())
        yield _none("foreign keys are valid", broken, restore)
    for about, question in QUESTIONS.items():
        yield _none(about, connection.scalar(text(question)) or 0, restore)


def _none(about: str, wrong: int, restore: str) -> Checked:
    """Return the check of a number of violations, which must be 0."""
    return Checked(
        about, not wrong, f"{wrong} are wrong" if wrong else "yes", restore if wrong else ""
    )


def _readable(studies: Studies, restore: str) -> Checked:
    """Name the unreadable studies: each has a separate document, so the others continue."""
    hurt = [study.id for study in studies.stored() if isinstance(study, UnreadableStudy)]
    more = f" and {len(hurt) - MOST_NAMED} more" if len(hurt) > MOST_NAMED else ""
    state = f"not {', '.join(hurt[:MOST_NAMED])}{more}" if hurt else "yes"
    hint = f"upgrade to the release that wrote them, or {restore}" if hurt else ""
    return Checked("every study is readable", not hurt, state, hint)


def _kept(connection: Connection) -> Checked:
    """Return the number of rows of the main tables."""
    tables = ("studies", "trials", "observations", "observed_windows", "events")
    counts = {t: connection.scalar(text(f"SELECT count(*) FROM {t}")) for t in tables}
    return Checked(
        "kept",
        True,
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()),
    )


def _backed_up(connection: Connection, now: Now, again: str) -> Checked:
    """Return whether the last backup is at most `MOST_DAYS` days old."""
    query = text("SELECT at FROM events WHERE kind = 'backed up' ORDER BY id DESC LIMIT 1")
    at = connection.execute(query.columns(at=EventRow.at.type)).scalar()
    if at is None:
        return Checked("last backup", False, "none yet", again)
    days = (now() - at).total_seconds() / 86_400.0
    late = days > MOST_DAYS
    return Checked("last backup", not late, f"{days:.1f} days ago", again if late else "")


def _room(path: Path | None, prune: str) -> Iterator[Checked]:
    """Yield whether the disk of an SQLite file has `LEAST_FREE_BYTES` free."""
    if path is None:
        return
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    well = free >= LEAST_FREE_BYTES
    state = f"{size / 1e6:,.1f} MB, {free / 1e9:,.1f} GB free"
    yield Checked("room", well, state, "" if well else f"free space, or {prune}")
