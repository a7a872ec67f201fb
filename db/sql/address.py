"""URLs of databases: the supported ones, and their form without passwords."""

from __future__ import annotations

import shlex
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.core import ConfigError, StoreError

MEMORY = "memory://"
"""The URL of a database in memory, which ends with the process."""
IN_MEMORY = URL.create("sqlite+pysqlite")
DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
EXAMPLES = "write it like sqlite:///jouletune.db or postgresql://user@host/name"
SECRETS = ("password", "sslpassword")


def read_url(text: str) -> URL:
    """Return a database URL with the driver that we use for it.

    Raises:
        ConfigError: it does not parse, or names no supported database. The message has no password.
    """
    scheme, colon, _ = text.partition(":")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"cannot read the database URL '{scheme}{colon and ':…'}'", hint=EXAMPLES
        ) from None
    if url.drivername not in DRIVERS:
        raise ConfigError(f"{url.drivername!r} is not a supported database", hint=EXAMPLES)
    if "@" in (url.host or ""):  # the rest of a password, which messages would show as the host
        raise ConfigError(
            "the database URL has more than one @", hint="write %40 for an @ in a password"
        )
    url = url.set(drivername=DRIVERS[url.drivername])
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "an SQLite URL needs a file", hint="name a file, or use memory:// to store nothing"
        )
    return url


def existing(text: str) -> URL:
    """Return the URL of a database that exists.

    Raises:
        ConfigError: it does not parse, or names no supported database.
        StoreError: its file does not exist.
    """
    url = read_url(text)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise StoreError(f"there is no database {shown(url)}", hint="check the URL")
    return url


def command(verb: str, database: str) -> str:
    """Return the command line for a verb on a database, given by its `shown` name."""
    return f"`jouletune db {verb} --db {shlex.quote(database)}`"


def shown(url: URL) -> str:
    """Return a URL without any password, for messages."""
    if url == IN_MEMORY:
        return MEMORY
    plain = url.set(drivername=url.get_backend_name()).difference_update_query(SECRETS)
    return plain.render_as_string(hide_password=True)
