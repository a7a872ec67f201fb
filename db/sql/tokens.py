"""Access tokens over SQLAlchemy."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, select, update

from db import refusals
from db.schema import TokenRow
from db.sql.database import Database, put
from db.sql.rows import TOKENS, readable
from tuner.core import AccessToken
from tuner.rows import StoredRows


class Tokens:
    """Access tokens in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; return False if the same token is stored already.

        `using` names an enrolment token, which is marked as used. Raises Conflict, Unauthorised.
        """
        with self._database.write() as connection:
            if _is_stored(connection, token, rotate=False):
                return False
            if using and not _noted(connection, using, "used_at", token.created_at):
                raise refusals.token_used(using)
            put(connection, TokenRow, TOKENS.values(token))
            return True

    def rotate(self, token: AccessToken) -> bool:
        """Replace the token of the same name; return False if it is stored already. Raises Conflict."""
        with self._database.write() as connection:
            if _is_stored(connection, token, rotate=True):
                return False
            put(connection, TokenRow, TOKENS.values(token))
            return True

    def of(self, digest: str) -> AccessToken | None:
        """Return the token with a digest, None if there is none."""
        return self._one(TokenRow.digest == digest)

    def named(self, name: str) -> AccessToken | None:
        """Return the token with a name, None if there is none."""
        return self._one(TokenRow.name == name)

    def _one(self, which: ColumnElement[bool]) -> AccessToken | None:
        """Return the token that matches a condition, None if there is none."""
        with self._database.reading("a token"), self._database.look() as connection:
            row = connection.execute(TOKENS.all.where(which)).first()
            return None if row is None else TOKENS.read(row)

    def list(self) -> StoredRows[AccessToken]:
        """Return all tokens, sorted by name."""
        rows = readable(self._database, TOKENS.all, TokenRow.name, TOKENS.read)
        return StoredRows(sorted(rows, key=lambda token: token.name), rows.unread)

    def revoke(self, name: str, at: datetime) -> None:
        """Mark a token as revoked. Raises NotFound."""
        with self._database.write() as connection:
            if not _noted(connection, name, "revoked_at", at):
                raise refusals.no_token(name)


def _is_stored(connection: Connection, token: AccessToken, *, rotate: bool) -> bool:
    """Return whether the same token is stored, unrevoked. Raises Conflict if it may not be stored."""
    same = select(TokenRow.name).where(TokenRow.digest == token.digest)
    if connection.scalar(same.where(TokenRow.name != token.name)) is not None:
        raise refusals.digest_taken()
    own = TOKENS.all.where(TokenRow.name == token.name).with_for_update()
    row = connection.execute(own).first()
    if row is None or row.revoked_at is not None:
        return False
    if (row.digest, row.role) == (token.digest, token.role):
        return True
    if rotate and row.role == token.role:
        return False
    raise refusals.name_taken(token.name)


def _noted(connection: Connection, name: str, moment: str, at: datetime) -> bool:
    """Mark a token as used or revoked; return False if no unrevoked (and unused) token has the name."""
    own = (TokenRow.name == name) & TokenRow.revoked_at.is_(None)
    if moment == "used_at":
        own &= TokenRow.used_at.is_(None)
    changed = update(TokenRow).where(own).values({moment: at}).returning(TokenRow.name)
    return connection.scalar(changed) is not None
