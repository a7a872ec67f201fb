"""Callers, their access tokens and roles, and the entries of the audit log."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from tuner.compat import StrEnum


class AccessRole(StrEnum):
    """The permissions of a token."""

    ADMIN = "admin"
    """Everything, like the token in the tuner's token file, which is not stored."""
    VIEWER = "viewer"
    """Reading only."""
    OPERATOR = "operator"
    """Reading and changes of studies; no tokens, and no actions of an agent."""
    GRID = "grid"
    """Grid events only: limits on budgets for some time."""
    AGENT = "agent"
    """The actions of one agent on the devices that it registered."""
    ENROL = "enrol"
    """Enrolment of one new agent, once."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, by its token."""

    name: str
    role: AccessRole

    @property
    def reads_pages(self) -> bool:
        """Whether the token's owner may sign in to the pages."""
        return not self.machine and self.role is not AccessRole.GRID

    @property
    def machine(self) -> bool:
        """Whether the token belongs to an agent instead of a person."""
        return self.role in (AccessRole.AGENT, AccessRole.ENROL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A token as it is stored: only its digest, never the token. `name` is its owner's, and unique.

    `digest` is SHA-256 for an agent's token and Argon2 for a person's: see `tuner.service.access`.
    """

    name: str
    role: AccessRole
    digest: str
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A requested change, or a refused request.

    `who` is the name of the caller's token and `role` its role; both are empty if the caller is unknown.
    `path` is the request's path without its query, `status` the HTTP status of the answer. Later entries
    have greater values of `id`.
    """

    at: datetime
    who: str
    role: str
    address: str
    method: str
    path: str
    status: int
    id: int = field(default=0, compare=False)


def digest_of(token: str) -> str:
    """Return a token's SHA-256 in hexadecimal: strong enough for a token of 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()
