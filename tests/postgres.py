"""A PostgreSQL server for tests: created in a temporary folder, and removed afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from tests.processes import reserved_port, run_to_end


def binaries() -> Path:
    """Return the folder of the newest server's programs; skip the test if there is none."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    on_path = shutil.which("initdb")
    if not programs and on_path is None:
        pytest.skip("no PostgreSQL server here (initdb was not found): apt install postgresql")
    return programs[-1].parent if programs else Path(str(on_path)).parent


@contextmanager
def server(folder: Path, options: str = "-F") -> Iterator[str]:
    """Run a server in `folder` and yield the URL of its maintenance database; `-F`: nothing is synced.

    PostgreSQL refuses to run as root; it then runs as `postgres`, or as `nobody`.
    """
    user = _unprivileged()
    folder.mkdir(parents=True)
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    _run(folder, "initdb", "-A", "trust", "-U", "tester", "-N", "--locale=C", "-E", "UTF8")
    port = reserved_port()
    log = str(folder / "log")
    _run(
        folder, "pg_ctl", "-w", "-l", log, "-o", f"-p {port} -h 127.0.0.1 -k '' {options}", "start"
    )
    try:
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        _run(folder, "pg_ctl", "-w", "-m", "immediate", "stop")


def restart(folder: Path) -> None:
    """End a server as a crash would, and start it again."""
    log = str(folder / "log")
    _run(folder, "pg_ctl", "-w", "-m", "immediate", "-l", log, "restart")


def _run(folder: Path, program: str, *arguments: str) -> None:
    user = _unprivileged()
    done = subprocess.run(
        [binaries() / program, "-D", folder / "data", *arguments],
        user=user.pw_uid if user is not None else None,
        group=user.pw_gid if user is not None else None,
        extra_groups=[] if user is not None else None,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{program}: {done.stderr.decode()}"


@contextmanager
def connection(url: str) -> Iterator[Connection]:
    """Open a connection apart from the store's; each statement is a transaction."""
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    try:
        with engine.connect() as opened:
            yield opened
    finally:
        engine.dispose()


def new_database(server: str, name: str) -> str:
    """Make an empty database on a server and return its URL."""
    with connection(server) as opened:
        opened.execute(text(f"CREATE DATABASE {name}"))
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def dump(url: str) -> str:
    """Return a database as text, without the time and place of the dump."""
    text = _client("pg_dump", url, "--no-owner")
    dated = ("-- Dumped ", "\\restrict ", "\\unrestrict ")
    return "".join(line for line in text.splitlines(True) if not line.startswith(dated))


def restore(url: str, path: Path) -> None:
    """Fill an empty database from the text of `dump`."""
    _client("psql", url, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(path))


def _client(program: str, url: str, *arguments: str) -> str:
    done = run_to_end([binaries() / program, *arguments, url], stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout


def _version(initdb: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in initdb.parent.parent.name.split(".") if part.isdigit())


def _unprivileged() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]
