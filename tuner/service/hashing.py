"""How people's tokens are stored: Argon2id, one computation at a time.

Parameters are the second choice of RFC 9106 §4 scaled to OWASP's least (19 MiB, two passes, one lane): a
token is 256 random bits, so nothing is guessed, and a flood of wrong ones must not take the memory.
"""

from __future__ import annotations

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

PREFIX = "$argon2"
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()


def hashed(token: str) -> str:
    """Return what is stored of a token."""
    with _ONE_AT_A_TIME:
        return _HASHER.hash(token)


def matches(stored: str, token: str) -> bool:
    """Return whether what is stored is of this token."""
    if not stored.startswith(PREFIX):
        return False
    try:
        with _ONE_AT_A_TIME:
            return _HASHER.verify(stored, token)
    except (VerificationError, InvalidHashError):
        return False
