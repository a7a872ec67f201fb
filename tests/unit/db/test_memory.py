from __future__ import annotations

import pytest

from db import Store, open_store
from tests.builders import device
from tests.contracts.every_store import *  # noqa: F403
from tests.stores import memory_store


@pytest.fixture
def store() -> Store:
    return memory_store()


def test_two_memories_know_nothing_of_each_other(store: Store) -> None:
    store.devices.put(device())
    assert open_store("memory://").devices.list() == ()
