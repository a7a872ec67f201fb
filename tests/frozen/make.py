"""Write the frozen data of this version into its folder: `python -m tests.frozen.make`.

An existing folder is not changed: a later release's code cannot write it again. Until its
release is tagged, delete it and run this again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from db import Store, open_store
from tests import postgres
from tests.frozen.later import LATER_MESSAGES, fill_later
from tests.frozen.messages import write_files
from tests.frozen.newer import NEWER_MESSAGES, fill_newer
from tuner.cli.app import load
from tuner.cli.table import VERBS
from tuner.wire import Message

TOP = Path(__file__).parents[2]
MIGRATIONS = TOP / "db" / "migrations" / "versions"


@dataclass(frozen=True)
class Release:
    """The frozen data of a release: its databases, its messages, and their folder."""

    version: str
    fill: Callable[[Store], None]
    messages: Mapping[str, Message]
    top: Path = Path(__file__).parent

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        return self.top / self.version

    @property
    def sqlite(self) -> Path:
        """Its database, as text."""
        return self.folder / "sqlite.sql"

    @property
    def postgres(self) -> Path:
        """Its database on PostgreSQL, as text."""
        return self.folder / "postgresql.sql"

    @property
    def sums(self) -> Path:
        """The checksums of its migrations."""
        return self.folder / "schema.sha256"

    @property
    def wire(self) -> Path:
        """Its messages."""
        return self.folder / "messages"

    @property
    def commands(self) -> Path:
        """Its command line: a command a line, with its options."""
        return self.folder / "commands.txt"

    @property
    def agent(self) -> Path:
        """The files of its agent and its root process."""
        return self.folder / "agent"


RELEASES = (
    Release("0.2.0", fill_later, LATER_MESSAGES),
    Release("0.3.0", fill_newer, NEWER_MESSAGES),
)
"""The frozen releases and the next one; content and messages of the next may still grow."""
NEXT = RELEASES[-1]
ALWAYS_EMPTY = {"write_checks"}
"""Tables that have no rows between two statements."""


def schema_sums() -> str:
    """Return the checksum of each migration, one per line."""
    files = sorted(MIGRATIONS.glob("[0-9]*.py"))
    sums = (f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(TOP)}" for f in files)
    return "".join(f"{line}\n" for line in sums)


def command_lines() -> str:
    """Return each command with its options, one per line."""
    lines = []
    for path, module, _ in VERBS:
        given = load(path.rpartition(" ")[2], module).params
        words = {word for one in given for word in (*one.opts, *one.secondary_opts)}
        lines.append(" ".join((path, *sorted(w for w in words if w.startswith("--")))))
    return "".join(f"{line}\n" for line in sorted(lines))


def sqlite_dump(filled: Callable[[Store], None], folder: Path) -> str:
    """Return a filled SQLite file as text."""
    path = folder / "tuner.db"
    store = open_store(f"sqlite:///{path}")
    filled(store)
    store.close()
    with closing(sqlite3.connect(path)) as file:
        return "\n".join(file.iterdump()) + "\n"


def empty_tables(dump: str) -> list[str]:
    """Return the tables without rows in a dump."""
    with closing(sqlite3.connect(":memory:")) as file:
        file.executescript(dump)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        names = [name for (name,) in file.execute(query)]
        counts = {name: file.execute(f'SELECT count(*) FROM "{name}"').fetchone() for name in names}
    return [name for name, (rows,) in counts.items() if not rows and name not in ALWAYS_EMPTY]


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server, in a folder that its user can open."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres.server(Path(folder) / "server") as url:
            yield url


def write(release: Release) -> None:
    """Write everything except the database on PostgreSQL."""
    release.wire.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        release.sqlite.write_text(sqlite_dump(release.fill, Path(temporary)))
    release.sums.write_text(schema_sums())
    release.commands.write_text(command_lines())
    for name, message in release.messages.items():
        text = json.dumps(json.loads(message.model_dump_json()), indent=1, ensure_ascii=False)
        (release.wire / f"{name}.json").write_text(f"{text}\n")
    write_files(release.agent)


def write_postgres(release: Release) -> None:
    """Write the database on PostgreSQL. Skips without a server."""
    with postgres_server() as server:
        url = postgres.new_database(server, "frozen")
        store = open_store(url)
        release.fill(store)
        store.close()
        release.postgres.write_text(postgres.dump(url))


def main() -> None:
    """Write everything; exit if the version is already frozen, or PostgreSQL is missing."""
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    release = next((one for one in RELEASES if one.version == version), None)
    if release is None:
        sys.exit(f"make.py: add {version} to RELEASES, with what it stores and says")
    if release.folder.exists():
        sys.exit(f"make.py: {release.folder} is there, and what {version} wrote stays")
    with tempfile.TemporaryDirectory(dir=release.top) as temporary:
        made = replace(release, top=Path(temporary))
        write(made)
        try:
            write_postgres(made)
        except pytest.skip.Exception as missing:
            sys.exit(f"make.py: nothing is written: {missing}")
        if empty := empty_tables(made.sqlite.read_text()):
            print(f"warning: no rows of {', '.join(empty)}; newer.py can add some", file=sys.stderr)
        made.folder.rename(release.folder)
    print(f"{release.folder}: commit it, then tag {version}")


if __name__ == "__main__":
    main()
