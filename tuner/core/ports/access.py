"""Who may ask, and who did, as it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.access import AccessToken, AuditEntry

__all__ = ["Audit", "Tokens"]


class Tokens(Protocol):
    """Access tokens by name, of which each has at most one that is not revoked."""

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; False where the same is stored already.

        With `using` the enrolment token of that name is used up by it, in the same transaction.

        Raises:
            Conflict: another token has the name, and is not revoked.
            Unauthorised: the enrolment token is used already.
        """

    def rotate(self, token: AccessToken) -> bool:
        """Store a token in place of one of its name and role; False where the same is stored already.

        Raises:
            Conflict: a token of another role has the name, and is not revoked.
        """

    def of(self, digest: str) -> AccessToken | None:
        """Return the token of a digest, None where there is none."""

    def named(self, name: str) -> AccessToken | None:
        """Return the token of a name, None where there is none."""

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens by name."""

    def revoke(self, name: str, at: datetime) -> None:
        """Note that a token counts no more. Raises NotFound: there is none, or it was revoked."""


class Audit(Protocol):
    """Who changed what, and what was refused."""

    def add(self, entry: AuditEntry) -> None:
        """Keep an entry."""

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) entries, oldest first, of one token where asked."""

    def prune(self, before: datetime) -> int:
        """Delete those before a time and return how many."""
