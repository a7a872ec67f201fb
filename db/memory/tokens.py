"""Access tokens in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from db import refusals
from db.memory.tables import Tables
from tuner.core import AccessToken


class MemoryTokens:
    """Access tokens in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; False where it is stored already. Raises Conflict, Unauthorised."""
        with self._tables.lock:
            if self._is_known(token, rotate=False):
                return False
            if using:
                spent = self._tables.access.get(using)
                if spent is None or spent.used_at is not None or spent.revoked_at is not None:
                    raise refusals.token_used(using)
                self._tables.access[using] = replace(spent, used_at=token.created_at)
            self._tables.access[token.name] = token
            return True

    def rotate(self, token: AccessToken) -> bool:
        """Store a token in place of another; False where it is stored already. Raises Conflict."""
        with self._tables.lock:
            if self._is_known(token, rotate=True):
                return False
            self._tables.access[token.name] = token
            return True

    def of(self, digest: str) -> AccessToken | None:
        """Return the token of a digest, None where there is none."""
        return next((token for token in self.list() if token.digest == digest), None)

    def named(self, name: str) -> AccessToken | None:
        """Return the token of a name, None where there is none."""
        return next((token for token in self.list() if token.name == name), None)

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens by name."""
        with self._tables.lock:
            return tuple(token for _, token in sorted(self._tables.access.items()))

    def revoke(self, name: str, at: datetime) -> None:
        """Note that a token counts no more. Raises NotFound."""
        with self._tables.lock:
            found = self._tables.access.get(name)
            if found is None or found.revoked_at is not None:
                raise refusals.no_token(name)
            self._tables.access[name] = replace(found, revoked_at=at)

    def _is_known(self, token: AccessToken, *, rotate: bool) -> bool:
        """Return whether a token is stored as it is. Raises Conflict where it may not be stored."""
        others = (t for t in self._tables.access.values() if t.name != token.name)
        if any(other.digest == token.digest for other in others):
            raise refusals.digest_taken()
        found = self._tables.access.get(token.name)
        if found is None or found.revoked_at is not None:
            return False
        if (found.digest, found.role) == (token.digest, token.role):
            return True
        if rotate and found.role is token.role:
            return False
        raise refusals.name_taken(token.name)
