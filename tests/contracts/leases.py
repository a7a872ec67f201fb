"""The contract of every store of leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from db import Store
from tests.builders import START, setting, study
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import Lease, NotFound, Phase, StaleToken, Trial

END = START + timedelta(seconds=10)


class LeasesContract:
    @pytest.fixture
    def trial(self, store: Store) -> Trial:
        store.studies.add(study(), "ann", "")
        return store.trials.begin("s1", setting(), Phase.TUNING, "", START)

    def test_a_device_has_no_lease_until_one_is_granted(self, store: Store, trial: Trial) -> None:
        assert store.leases.get("sim") is None
        granted = store.leases.grant("sim", "s1", replace(trial, attempt=3), "host", END)
        assert granted == Lease(
            device="sim",
            study="s1",
            trial=1,
            attempt=3,
            token=1,
            nonce=granted.nonce,
            agent="host",
            expires_at=END,
        )
        assert store.leases.get("sim") == granted
        assert store.leases.get("other") is None

    def test_a_new_lease_replaces_the_old_under_a_greater_token(
        self, store: Store, trial: Trial
    ) -> None:
        first = store.leases.grant("sim", "s1", trial, "host", END)
        second = store.leases.grant("sim", "s1", trial, "other", END)
        assert second.token > first.token
        assert store.leases.get("sim") == second
        with raised(StaleToken, first.token):
            store.leases.renew("sim", first.token, first.nonce, END)

    def test_tokens_grow_over_releases_too(self, store: Store, trial: Trial) -> None:
        tokens = []
        for _ in range(3):
            tokens.append(store.leases.grant("sim", "s1", trial, "host", END).token)
            store.leases.release("sim", tokens[-1])
            assert store.leases.get("sim") is None
        assert tokens == sorted(set(tokens))

    def test_tokens_granted_at_once_are_distinct(self, store: Store, trial: Trial) -> None:
        tokens = together(lambda _: store.leases.grant("sim", "s1", trial, "host", END).token)
        assert len(set(tokens)) == len(tokens)
        lease = store.leases.get("sim")
        assert lease is not None and lease.token == max(tokens)

    def test_the_holder_of_a_lease_can_extend_it(self, store: Store, trial: Trial) -> None:
        lease = store.leases.grant("sim", "s1", trial, "host", END)
        renewed = store.leases.renew("sim", lease.token, lease.nonce, END + timedelta(seconds=5))
        assert renewed == replace(lease, expires_at=END + timedelta(seconds=5))
        assert store.leases.get("sim") == renewed

    def test_the_token_alone_does_not_put_off_the_end(self, store: Store, trial: Trial) -> None:
        lease = store.leases.grant("sim", "s1", trial, "host", END)
        other = store.leases.grant("other", "s1", trial, "host", END)
        assert other.nonce != lease.nonce
        for nonce in ("", other.nonce):
            with raised(StaleToken, "nonce") as refused:
                store.leases.renew("sim", lease.token, nonce, END + timedelta(seconds=5))
            assert lease.nonce not in str(refused.value)
        assert store.leases.get("sim") == lease

    def test_an_ended_lease_is_not_renewed(self, store: Store, trial: Trial) -> None:
        with raised(NotFound, "sim"):
            store.leases.renew("sim", 1, "", END)
        lease = store.leases.grant("sim", "s1", trial, "host", END)
        store.leases.release("sim", lease.token)
        with raised(NotFound, "sim"):
            store.leases.renew("sim", lease.token, lease.nonce, END)
        assert store.leases.get("sim") is None

    def test_only_the_token_in_force_releases(self, store: Store, trial: Trial) -> None:
        old = store.leases.grant("sim", "s1", trial, "host", END)
        new = store.leases.grant("sim", "s1", trial, "host", END)
        store.leases.release("sim", old.token)
        store.leases.release("nobody", 1)
        assert store.leases.get("sim") == new

    def test_a_lease_is_for_a_trial_that_exists(self, store: Store, trial: Trial) -> None:
        with raised(NotFound, "trial 2"):
            store.leases.grant("sim", "s1", replace(trial, number=2), "host", END)
        assert store.leases.get("sim") is None
