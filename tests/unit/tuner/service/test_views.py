"""A study is found by its id or by a prefix that no other has; the rows of a plan as operators see them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from db import Store
from tests.builders import device, study
from tests.errors import raised
from tests.stores import memory_store
from tests.unit.tuner.bo.served import BY, SPACE, asked, at_baseline
from tuner.core import InvalidInput, NotFound, Past, Plan, Row, Terms
from tuner.service.views import begun_with, row_views


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


def test_windows_of_the_baseline_at_another_load_are_not_claimed_for_a_row() -> None:
    plan = Plan((Row(20.0, SPACE.default, at=15.0), Row(math.inf, SPACE.default, at=90.0)), BY)
    windows = at_baseline(15.0)
    low, high = row_views(
        Past(study=replace(asked(), terms=Terms(), plan=plan), trials=tuple(windows))
    )
    assert low.windows == 2 and low.metrics
    assert high.windows == 0 and not high.metrics
