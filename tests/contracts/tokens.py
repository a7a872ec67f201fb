"""The contract of every store of access tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from db import Store
from tests.builders import START
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import AccessRole, AccessToken, Conflict, NotFound, Unauthorised, digest_of

LATER = START + timedelta(hours=1)
END = START + timedelta(days=1)
ENROL = AccessToken(
    name="enrol-1",
    role=AccessRole.ENROL,
    digest=digest_of("once"),
    created_at=START,
    expires_at=END,
)


def agent(secret: str = "a", name: str = "agent@host") -> AccessToken:
    return AccessToken(name=name, role=AccessRole.AGENT, digest=digest_of(secret), created_at=LATER)


class TokensContract:
    def test_a_token_is_found_by_its_digest_as_it_was_stored(self, store: Store) -> None:
        assert store.tokens.add(ENROL) is True
        assert store.tokens.add(agent()) is True
        assert store.tokens.of(digest_of("once")) == ENROL
        assert store.tokens.of(digest_of("guess")) is None
        assert store.tokens.list() == (agent(), ENROL)

    def test_the_same_token_again_changes_nothing_another_of_its_name_is_refused(
        self, store: Store
    ) -> None:
        store.tokens.add(agent())
        assert store.tokens.add(replace(agent(), created_at=END)) is False
        with raised(Conflict, "agent@host") as refused:
            store.tokens.add(agent("b"))
        assert "token revoke agent@host" in refused.value.hint
        with pytest.raises(Conflict):
            store.tokens.add(replace(agent(), role=AccessRole.OPERATOR))
        assert store.tokens.list() == (agent(),)

    def test_a_token_that_another_has_is_refused(self, store: Store) -> None:
        store.tokens.add(ENROL)
        twin = replace(agent(), digest=ENROL.digest)
        with raised(Conflict):
            store.tokens.add(twin, using="enrol-1")
        with raised(Conflict):
            store.tokens.rotate(twin)
        assert store.tokens.list() == (ENROL,)

    def test_an_enrolment_token_makes_one_agent(self, store: Store) -> None:
        store.tokens.add(ENROL)
        assert store.tokens.add(agent(), using="enrol-1") is True
        assert store.tokens.of(ENROL.digest) == replace(ENROL, used_at=LATER)
        assert store.tokens.add(agent(), using="enrol-1") is False, "the answer got lost"
        with raised(Unauthorised, "enrol-1"):
            store.tokens.add(agent("b", "agent@other"), using="enrol-1")
        assert store.tokens.of(digest_of("b")) is None

    def test_one_of_several_concurrent_enrolments_with_one_token_succeeds(
        self, store: Store
    ) -> None:
        store.tokens.add(ENROL)

        def enrol(index: int) -> bool:
            try:
                return store.tokens.add(agent(f"{index}", f"agent@{index}"), using="enrol-1")
            except Unauthorised:
                return False

        assert sum(together(enrol)) == 1
        assert len(store.tokens.list()) == 2

    def test_a_refused_enrolment_leaves_the_enrolment_token_unused(self, store: Store) -> None:
        store.tokens.add(ENROL)
        store.tokens.add(agent())
        with pytest.raises(Conflict):
            store.tokens.add(agent("b"), using="enrol-1")
        assert store.tokens.of(ENROL.digest) == ENROL

    def test_a_revoked_or_unknown_enrolment_token_makes_none(self, store: Store) -> None:
        store.tokens.add(ENROL)
        store.tokens.revoke("enrol-1", LATER)
        for using in ("enrol-1", "enrol-2"):
            with pytest.raises(Unauthorised):
                store.tokens.add(agent(), using=using)
        assert store.tokens.of(digest_of("a")) is None

    def test_a_rotated_token_replaces_that_of_its_name_and_role(self, store: Store) -> None:
        assert store.tokens.rotate(agent()) is True
        assert store.tokens.rotate(agent("b")) is True
        assert store.tokens.rotate(agent("b")) is False
        assert store.tokens.of(digest_of("a")) is None
        assert store.tokens.list() == (agent("b"),)
        operator = replace(agent("c", "ann"), role=AccessRole.OPERATOR)
        store.tokens.add(operator)
        with raised(Conflict, "ann"):
            store.tokens.rotate(agent("d", "ann"))
        assert store.tokens.of(operator.digest) == operator

    def test_a_revoked_token_is_known_as_such_and_its_name_is_free_again(
        self, store: Store
    ) -> None:
        store.tokens.add(agent())
        store.tokens.revoke("agent@host", END)
        assert store.tokens.of(digest_of("a")) == replace(agent(), revoked_at=END)
        assert store.tokens.add(agent("b")) is True
        assert store.tokens.list() == (agent("b"),)

    def test_an_unknown_or_revoked_token_cannot_be_revoked(self, store: Store) -> None:
        store.tokens.add(agent())
        store.tokens.revoke("agent@host", LATER)
        for name in ("agent@host", "nobody"):
            with pytest.raises(NotFound, match=name):
                store.tokens.revoke(name, END)
        assert store.tokens.list() == (replace(agent(), revoked_at=LATER),)
