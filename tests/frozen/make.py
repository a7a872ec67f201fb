"""Write what 0.1.0 leaves behind: `python -m tests.frozen.make`. Run again, it changes nothing.

Until 0.1.0 is tagged, a changed schema or message only needs this run again. From then on the files
stay as they are: nobody can make them anew with a later release's code.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from db import open_store
from tests import postgres
from tests.frozen.content import fill
from tests.frozen.messages import MESSAGES, write_files

RELEASE = "0.1.0"
FOLDER = Path(__file__).parent / RELEASE
TOP = Path(__file__).parents[2]
MIGRATION = TOP / "db" / "migrations" / "versions" / "0001_first_schema.py"
SQLITE, POSTGRES, SUM = FOLDER / "sqlite.sql", FOLDER / "postgresql.sql", FOLDER / "schema.sha256"
WIRE, AGENT = FOLDER / "messages", FOLDER / "agent"


def schema_sum() -> str:
    """Return the checksum of the release's only migration."""
    return hashlib.sha256(MIGRATION.read_bytes()).hexdigest()


def sqlite_dump(folder: Path) -> str:
    """Return a filled SQLite file as text."""
    path = folder / "tuner.db"
    store = open_store(f"sqlite:///{path}")
    fill(store)
    store.close()
    with closing(sqlite3.connect(path)) as file:
        return "\n".join(file.iterdump()) + "\n"


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server; not in a folder that is closed to the user it runs as."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres.server(Path(folder) / "server") as url:
            yield url


def main() -> None:
    """Write everything; without a PostgreSQL here its dump stays as it is."""
    if version("jouletune") != RELEASE:
        raise SystemExit(f"this is jouletune {version('jouletune')}: what {RELEASE} wrote stays")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for old in (WIRE, AGENT):
            shutil.rmtree(old, ignore_errors=True)
        WIRE.mkdir(parents=True)
        SQLITE.write_text(sqlite_dump(folder))
        SUM.write_text(f"{schema_sum()}  {MIGRATION.relative_to(TOP)}\n")
        for name, message in MESSAGES.items():
            text = json.dumps(json.loads(message.model_dump_json()), indent=1, ensure_ascii=False)
            (WIRE / f"{name}.json").write_text(f"{text}\n")
        write_files(folder / "agent")
        shutil.copytree(folder / "agent", AGENT)
    try:
        with postgres_server() as server:
            url = postgres.new_database(server, "frozen")
            store = open_store(url)
            fill(store)
            store.close()
            POSTGRES.write_text(postgres.dump(url))
    except pytest.skip.Exception as missing:
        print(f"{POSTGRES.name} stays as it is: {missing}")


if __name__ == "__main__":
    main()
