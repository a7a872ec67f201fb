"""The store: its parts over one database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, text

from db.schema import WriteCheckRow
from db.sql.address import IN_MEMORY, MEMORY, read_url, shown
from db.sql.budgets import Budgets
from db.sql.bus import Bus
from db.sql.database import Database, Timed, insert_into, untimed
from db.sql.devices import Devices
from db.sql.log import Events, Observations
from db.sql.stops import Stops
from db.sql.studies import Studies
from db.sql.tables import Audit, Deliveries, Replicas
from db.sql.tokens import Tokens
from db.sql.trials import Leases, Trials
from db.sql.upgrade import bring_up
from tuner import files
from tuner.core import ConfigError, StoreError

POOLED_LOOKS = 4


class Store:
    """The store in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.studies = Studies(database)
        self.trials = Trials(database)
        self.leases = Leases(database)
        self.bus = Bus(database)
        self.devices = Devices(database, self.bus)
        self.observations = Observations(database)
        self.events = Events(database, self.bus)
        self.tokens = Tokens(database)
        self.stops = Stops(database)
        self.budgets = Budgets(database)
        self.audit = Audit(database)
        self.deliveries = Deliveries(database)
        self.replicas = Replicas(database)

    def ping(self) -> None:
        """Check that the database answers. Raises StoreError."""
        with self._database.look() as connection:
            connection.execute(text("SELECT 1"))

    def check_writable(self) -> None:
        """Check that the database stores a change, by making one. Raises StoreError."""
        counted = {"times": WriteCheckRow.times + 1}
        with self._database.act() as connection:
            first = insert_into(connection, WriteCheckRow).values(id=1, times=1)
            connection.execute(first.on_conflict_do_update(index_elements=["id"], set_=counted))

    def close(self) -> None:
        """Stop listening and close all connections."""
        self.bus.close()
        self._database.engine.dispose()
        self.bus.release()


def open_sql_store(text_url: str, *, create: bool, timed: Timed = untimed) -> Store:
    """Open a database and upgrade its schema; `timed` is called for every transaction.

    Raises:
        ConfigError: the URL names no supported database, or its driver is not installed.
        StoreError: the database does not answer, or was written by a newer program.
    """
    if text_url == MEMORY:
        return Store(Database(IN_MEMORY, timed))
    url = read_url(text_url)
    if url.get_backend_name() == "sqlite":
        _find_file(url, create=create)
    database = Database(url, timed)
    try:
        if url.get_backend_name() != "sqlite":
            refuse_pooled(database)
        bring_up(database, create=create)
    except BaseException:
        database.engine.dispose()
        raise
    return Store(database)


def refuse_pooled(database: Database) -> None:
    """Raise ConfigError if a pooler shares connections between transactions, as PgBouncer can.

    Session locks, LISTEN and prepared statements fail there: two tuners would lead. While a second
    connection has a transaction open, the first must get its former backend again, and never the second's.
    A pooler assigns backends freely, so the test is repeated `POOLED_LOOKS` times.
    """
    backend = text("SELECT pg_backend_pid()")
    for _ in range(POOLED_LOOKS):
        connect = database.engine.connect
        with database.spoken(), connect() as first, connect() as second:
            before = first.scalar(backend)
            first.rollback()
            other = second.scalar(backend)
            after = first.scalar(backend)
        if before != after or other in (before, after):
            raise ConfigError(
                f"database {database.name} is behind a pooler that shares connections between transactions",
                hint="use PgBouncer in session mode (pool_mode = session), or PostgreSQL itself",
            )


def _find_file(url: URL, *, create: bool) -> None:
    """Create a private database file if `create`; otherwise require that it exists. Raises StoreError."""
    path = Path(url.database or "")
    if not create:
        if not path.exists():
            raise StoreError(
                f"there is no database {shown(url)}", hint="check the URL, or start a tuner"
            )
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.make_private(path)  # SQLite gives the files beside it the same mode
    except OSError as error:
        raise StoreError(
            f"the file of database {shown(url)} cannot be made: {error.strerror}",
            hint="give a file that you can write",
        ) from error
