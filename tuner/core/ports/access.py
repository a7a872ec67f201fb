"""Ports for access tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.access import AccessToken, AuditEntry
from tuner.core.ports.rows import StoredRows

__all__ = ["Audit", "Tokens"]


class Tokens(Protocol):
    """Access tokens by name; at most one token of a name is not revoked."""

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; return False if the same token is stored already.

        `using` is the name of an enrolment token, which the same transaction uses up.

        Raises:
            Conflict: another token has the name, and is not revoked.
            Unauthorised: the enrolment token has been used already.
        """

    def rotate(self, token: AccessToken) -> bool:
        """Store a token in place of one of its name and role; return False if the same is stored already.

        Raises:
            Conflict: a token of another role has the name, and is not revoked.
        """

    def of(self, digest: str) -> AccessToken | None:
        """Return the token with this digest, None if it is not stored."""

    def named(self, name: str) -> AccessToken | None:
        """Return the token of a name, None if the name is unknown."""

    def list(self) -> StoredRows[AccessToken]:
        """Return all tokens by name."""

    def revoke(self, name: str, at: datetime) -> None:
        """Record that a token was revoked. Raises NotFound: the name is unknown, or revoked already."""


class Audit(Protocol):
    """The audit log: requested changes and refused requests, with their callers."""

    def add(self, entry: AuditEntry) -> None:
        """Store an entry."""

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the `last` entries (None: all) of the token `who` (None: of all tokens), oldest first."""

    def prune(self, before: datetime) -> int:
        """Delete entries before a time and return their number."""
