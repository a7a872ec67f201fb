from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from db import open_store
from tests.builders import device
from tests.contracts.killed_writer import ROOT
from tests.errors import raised
from tests.processes import reserved_port, run_to_end
from tuner.core import ConfigError, NotFound, StoreError


def test_importing_the_memory_imports_no_database() -> None:
    code = (
        "import sys, db; "
        "sys.exit(sorted({'sqlalchemy', 'alembic', 'psycopg', 'pyarrow'} & set(sys.modules)) or 0)"
    )
    done = run_to_end([sys.executable, "-c", code], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tuner.db",
        "postgresql:ann:secret@host/db",
        "postgresql://ann:secret@host:port/db",
        "mysql://ann:secret@host/db",
        "postgresql://ann:top@secret@host/db",
        "postgresql+asyncpg://ann:secret@host/db",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_a_url_we_cannot_use_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with raised(ConfigError, "jouletune[postgres]"):
        open_store("postgresql://ann@host/db")


@pytest.mark.parametrize("query", ["", "?password=secret", "?sslpassword=secret&sslmode=prefer"])
def test_a_server_that_is_not_there_is_one_line_without_the_password(query: str) -> None:
    port = reserved_port()
    with raised(StoreError, "127.0.0.1", port, "/db") as caught:
        open_store(f"postgresql://ann:secret@127.0.0.1:{port}/db{query}")
    assert "refused" in str(caught.value) and caught.value.hint
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        began = time.monotonic()
        with raised(StoreError, "timeout"):
            open_store(f"postgres://ann@127.0.0.1:{port}/db?connect_timeout=2")
    assert time.monotonic() - began < 20


def test_missing_folders_of_a_database_are_created(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "tuner.db"
    store = open_store(f"sqlite:///{path}")
    store.ping()
    store.close()
    assert path.exists()


def test_without_create_no_database_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tuner.db"
    with raised(StoreError, "sqlite:///", path):
        open_store(f"sqlite:///{path}", create=False)
    assert not path.parent.exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raised(StoreError, "database"):
        open_store(f"sqlite:///{tmp_path}/file/tuner.db")
    with pytest.raises(StoreError, match="unable to open"):
        open_store(f"sqlite:///{tmp_path}")


def test_a_file_that_is_not_a_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough that SQLite reads its header " * 20)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_store_answers_again_after_it_was_closed(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/tuner.db")
    store.devices.put(device())
    store.close()
    store.ping()
    assert store.devices.list() == (device(),)
    store.close()


def test_every_transaction_is_reported_with_its_duration(tmp_path: Path) -> None:
    transactions: list[tuple[str, float]] = []
    store = open_store(
        f"sqlite:///{tmp_path / 'tuner.sqlite'}",
        timed=lambda kind, s: transactions.append((kind, s)),
    )
    transactions.clear()
    store.devices.put(device("gpu"))
    store.devices.get("gpu")
    with pytest.raises(NotFound):
        store.devices.get("nobody")
    store.close()
    assert [kind for kind, _ in transactions] == ["write", "read", "read"]
    assert all(0.0 < seconds < 60.0 for _, seconds in transactions)
