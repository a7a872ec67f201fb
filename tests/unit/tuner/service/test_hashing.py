"""The stored form of a person's token grants no access by itself."""

from __future__ import annotations

import pytest

from tuner.core import digest_of
from tuner.service.hashing import hashed, matches


def test_only_the_token_itself_matches_its_stored_hash() -> None:
    stored = hashed("ann.secret")
    assert matches(stored, "ann.secret")
    assert not matches(stored, "ann.secret2")
    assert not matches(stored, stored)
    assert stored != hashed("ann.secret"), "each has a salt of its own"


@pytest.mark.parametrize("stored", ["", "$argon2", "$argon2id$v=19$m=1", digest_of("ann.secret")])
def test_a_text_that_is_not_an_argon2_hash_matches_nothing(stored: str) -> None:
    assert not matches(stored, "ann.secret")
