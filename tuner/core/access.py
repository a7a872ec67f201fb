"""Who asks: machine tokens, what they are for, and when they still count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from tuner.compat import StrEnum

__all__ = ["AccessRole", "AccessToken", "AuditEntry", "Caller", "digest_of"]


class AccessRole(StrEnum):
    """What a token allows."""

    ADMIN = "admin"
    """Everything, as the token of the tuner's own token file does, which is not stored."""
    VIEWER = "viewer"
    """Questions only."""
    OPERATOR = "operator"
    """Studies and questions, no tokens, nothing in an agent's name."""
    GRID = "grid"
    """Events of the grid only: limits on budgets for some time."""
    AGENT = "agent"
    """What one agent does with the devices it registered."""
    ENROL = "enrol"
    """To become one new agent, once."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, by its token."""

    name: str
    role: AccessRole

    @property
    def reads_pages(self) -> bool:
        """Whether its owner may sign in to the pages."""
        return not self.machine and self.role is not AccessRole.GRID

    @property
    def machine(self) -> bool:
        """Whether it is no person's token."""
        return self.role in (AccessRole.AGENT, AccessRole.ENROL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A token as it is stored: never itself, only its digest. `name` is whose it is, and unique.

    `digest` is an agent's SHA-256, or a person's Argon2: see `tuner.service.hashing`.
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

    `who` is the token's name, `role` its role; both empty where unknown the caller. `path` is the
    request's, without its query; `status` what it was answered (HTTP). `id` grows as they are stored.
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
    """Return a token's SHA-256 in hexadecimal: enough where the token is 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()
