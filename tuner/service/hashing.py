"""Storage of people's tokens: Argon2id hashes, computed one at a time.

The parameters are the second choice of RFC 9106 §4, scaled to OWASP's least (19 MiB, two passes, one lane).
A token has 256 random bits and cannot be guessed; a flood of wrong tokens must not use up the memory.

Nor may it use up the CPU: the salt begins with four bytes of the token's SHA-256, so that all but one in
2³² wrong tokens are refused without an Argon2 computation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

PREFIX = "$argon2"
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()
TAG_BYTES, SALT_BYTES = 4, 16


def hashed(token: str) -> str:
    """Return the Argon2id hash by which a token is stored."""
    with _ONE_AT_A_TIME:
        return _HASHER.hash(token, salt=_tag(token) + secrets.token_bytes(SALT_BYTES))


def matches(stored: str, token: str) -> bool:
    """Return whether a stored hash belongs to a token."""
    if not stored.startswith(PREFIX) or not _may_match(stored, token):
        return False
    try:
        with _ONE_AT_A_TIME:
            return _HASHER.verify(stored, token)
    except (VerificationError, InvalidHashError):
        return False


def _tag(token: str) -> bytes:
    """Return the bytes of a token's SHA-256 with which its salt begins."""
    return hashlib.sha256(token.encode()).digest()[:TAG_BYTES]


def _may_match(stored: str, token: str) -> bool:
    """Return whether the salt allows the token; the salt of an older release has no tag and allows all."""
    try:
        coded = stored.split("$")[4]
        salt = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except (IndexError, binascii.Error):
        return False
    return len(salt) != TAG_BYTES + SALT_BYTES or salt[:TAG_BYTES] == _tag(token)
