"""How people's tokens are stored: Argon2id, one computation at a time.

Parameters are the second choice of RFC 9106 §4 scaled to OWASP's least (19 MiB, two passes, one lane): a
token is 256 random bits, so nothing is guessed, and a flood of wrong ones must not take the memory.
Nor the time: the salt begins with four bytes of the token's SHA-256, by which all but one in 2³² wrong
ones are refused without the computation.
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
    """Return what is stored of a token."""
    with _ONE_AT_A_TIME:
        return _HASHER.hash(token, salt=_tag(token) + secrets.token_bytes(SALT_BYTES))


def matches(stored: str, token: str) -> bool:
    """Return whether what is stored is of this token."""
    if not stored.startswith(PREFIX) or not _may_match(stored, token):
        return False
    try:
        with _ONE_AT_A_TIME:
            return _HASHER.verify(stored, token)
    except (VerificationError, InvalidHashError):
        return False


def _tag(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()[:TAG_BYTES]


def _may_match(stored: str, token: str) -> bool:
    """Return whether the salt does not rule the token out; that of an older release never does."""
    try:
        coded = stored.split("$")[4]
        salt = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except (IndexError, binascii.Error):
        return False
    return len(salt) != TAG_BYTES + SALT_BYTES or salt[:TAG_BYTES] == _tag(token)
