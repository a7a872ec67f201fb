"""Access tokens over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db import refusals
from db.schema import TokenRow
from db.sql.database import Database
from tuner.core import AccessRole, AccessToken


class SqlTokens:
    """Access tokens in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; False where it is stored already. Raises Conflict, Unauthorised."""
        with self._database.write() as session:
            if _is_known(session, token, rotate=False):
                return False
            if using and not _used_now(session, using, token.created_at):
                raise refusals.token_used(using)
            session.merge(_row(token))
            return True

    def rotate(self, token: AccessToken) -> bool:
        """Store a token in place of another; False where it is stored already. Raises Conflict."""
        with self._database.write() as session:
            if _is_known(session, token, rotate=True):
                return False
            session.merge(_row(token))
            return True

    def of(self, digest: str) -> AccessToken | None:
        """Return the token of a digest, None where there is none."""
        with self._database.read() as session:
            row = session.scalar(select(TokenRow).where(TokenRow.digest == digest))
            return None if row is None else _to_token(row)

    def named(self, name: str) -> AccessToken | None:
        """Return the token of a name, None where there is none."""
        with self._database.read() as session:
            row = session.get(TokenRow, name)
            return None if row is None else _to_token(row)

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens by name."""
        with self._database.read() as session:
            found = [_to_token(row) for row in session.scalars(select(TokenRow)).all()]
            return tuple(sorted(found, key=lambda token: token.name))

    def revoke(self, name: str, at: datetime) -> None:
        """Note that a token counts no more. Raises NotFound."""
        with self._database.write() as session:
            revoked = session.scalar(
                update(TokenRow)
                .where(TokenRow.name == name, TokenRow.revoked_at.is_(None))
                .values(revoked_at=at)
                .returning(TokenRow.name)
            )
            if revoked is None:
                raise refusals.no_token(name)


def _is_known(session: Session, token: AccessToken, *, rotate: bool) -> bool:
    """Return whether a token is stored as it is. Raises Conflict where it may not be stored."""
    same = select(TokenRow.name).where(TokenRow.digest == token.digest)
    if session.scalar(same.where(TokenRow.name != token.name)) is not None:
        raise refusals.digest_taken()
    row = session.get(TokenRow, token.name, with_for_update=True)
    if row is None or row.revoked_at is not None:
        return False
    if (row.digest, row.role) == (token.digest, token.role):
        return True
    if rotate and row.role == token.role:
        return False
    raise refusals.name_taken(token.name)


def _used_now(session: Session, name: str, at: datetime) -> bool:
    used = session.scalar(
        update(TokenRow)
        .where(TokenRow.name == name, TokenRow.used_at.is_(None), TokenRow.revoked_at.is_(None))
        .values(used_at=at)
        .returning(TokenRow.name)
    )
    return used is not None


def _row(token: AccessToken) -> TokenRow:
    return TokenRow(**(asdict(token) | {"role": token.role.value}))


def _to_token(row: TokenRow) -> AccessToken:
    return AccessToken(
        name=row.name,
        role=AccessRole(row.role),
        digest=row.digest,
        created_at=row.created_at,
        expires_at=row.expires_at,
        used_at=row.used_at,
        revoked_at=row.revoked_at,
    )
