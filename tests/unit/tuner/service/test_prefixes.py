"""A study is found by its id, or by a prefix that no other study shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db import Store
from tests.builders import device, study
from tests.errors import raised
from tests.stores import memory_store
from tuner.core import InvalidInput, NotFound
from tuner.service.prefixes import begun_with


def stored(*names: str) -> Store:
    store = memory_store()
    for number, name in enumerate(names):
        store.devices.put(device(f"d{number}"))
        store.studies.add(replace(study(), id=name, devices=(f"d{number}",)), "ann", "")
    return store


def test_a_unique_prefix_of_a_studys_id_is_enough() -> None:
    store = stored("3fa1", "3fb2", "4c00")
    for name in ("4", "4c0", "4c00"):
        assert begun_with(store.studies, name).id == "4c00"
    with raised(NotFound, "5"):
        begun_with(store.studies, "5")
    with pytest.raises(NotFound):
        begun_with(store.studies, "")


def test_a_whole_id_wins_over_those_that_go_on() -> None:
    assert begun_with(stored("3fa1", "3f").studies, "3f").id == "3f"


def test_a_prefix_of_several_ids_names_them_all() -> None:
    with pytest.raises(InvalidInput) as refused:
        begun_with(stored("3fa1", "3fb2", "4c00").studies, "3f")
    assert refused.value.message == "2 studies begin with '3f': 3fa1 (tuning), 3fb2 (tuning)"
    assert refused.value.hint == "give more characters of the id"
    with raised(InvalidInput, "and 3"):
        begun_with(stored(*(f"a{n:02}" for n in range(11))).studies, "a")
