"""Runs migrations on the connection that is handed in, or on `-x url=…` from the command line."""

from __future__ import annotations

from typing import Literal

from alembic import context
from sqlalchemy import Connection, TypeDecorator

from db.schema import Base
from db.sql.address import read_url
from db.sql.engine import connect


def render_item(_kind: str, item: object, _context: object) -> str | Literal[False]:
    """Write our own types as the database types that they use: a migration outlives the models."""
    return f"sa.{item.impl!r}" if isinstance(item, TypeDecorator) else False


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        render_item=render_item,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    engine = connect(read_url(context.get_x_argument(as_dictionary=True)["url"]))
    with engine.begin() as opened:
        migrate(opened)
