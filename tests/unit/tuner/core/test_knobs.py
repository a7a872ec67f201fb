"""Knobs, settings and spaces."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raised
from tuner.core import (
    InvalidInput,
    Knob,
    OutOfRange,
    Part,
    Space,
    UnknownKnob,
    setting_key,
)

CLOCK = Knob("gpu.clock_mhz", (300, 600, 900), 900)
BATCH = Knob("batch_size", (1, 2, 4, 8), 1, Part.WORKLOAD)
SPACE = Space((CLOCK, BATCH))


@pytest.mark.parametrize(
    ("values", "default"),
    [((), 1), ((1, 1), 1), ((1, 2), 3), ((1.0, math.inf), 1.0), ((math.nan,), math.nan)],
)
def test_an_invalid_knob_is_refused(values: tuple[float, ...], default: float) -> None:
    with pytest.raises(InvalidInput):
        Knob("k", values, default)


def test_a_value_outside_the_list_is_named_with_the_values_there_are() -> None:
    with raised(OutOfRange, "gpu.clock_mhz", "be 450", "300", "600", "900"):
        SPACE.check({"gpu.clock_mhz": 450, "batch_size": 1})


def test_an_unknown_knob_is_named_with_the_knobs_there_are() -> None:
    with raised(UnknownKnob, "fan", "gpu.clock_mhz", "batch_size"):
        SPACE.check({"gpu.clock_mhz": 300, "batch_size": 1, "fan": 3})


def test_a_setting_must_name_every_knob() -> None:
    with raised(UnknownKnob, "batch_size"):
        SPACE.check({"gpu.clock_mhz": 300})


def test_the_grid_has_every_setting_once_and_the_default_is_one_of_them() -> None:
    grid = list(SPACE.grid())
    assert len(grid) == SPACE.size == 12
    assert len({setting_key(s) for s in grid}) == 12
    assert SPACE.default in grid


def test_only_listed_combinations_are_allowed() -> None:
    listed = ({"gpu.clock_mhz": 900, "batch_size": 1}, {"gpu.clock_mhz": 300, "batch_size": 8})
    space = Space((CLOCK, BATCH), listed)
    assert space.size == 2
    assert list(space.grid()) == list(listed)
    with raised(OutOfRange, "the 2"):
        space.check({"gpu.clock_mhz": 300, "batch_size": 1})


def test_a_space_whose_default_is_forbidden_is_refused() -> None:
    with pytest.raises(OutOfRange):
        Space((CLOCK, BATCH), ({"gpu.clock_mhz": 300, "batch_size": 8},))


def test_a_combination_that_is_listed_twice_is_refused() -> None:
    knobs = (Knob("a", (1, 2), 1), Knob("b", (1, 2), 1))
    only = ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"b": 1, "a": 2})
    with pytest.raises(InvalidInput, match="listed twice"):
        Space(knobs, only)


def test_two_knobs_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="same name"):
        Space((CLOCK, CLOCK))


def test_a_knob_no_longer_offered_leaves_the_space_at_its_default() -> None:
    clock, limit = Knob("clock", (600, 800, 1000), 1000), Knob("limit", (100, 200, 400), 400)
    space = Space((clock, limit))
    offered = Space((replace(clock, values=(600, 1000)), replace(limit, values=(400,))))
    left = space.within(offered)
    assert [k.values for k in left.knobs] == [(600, 1000), (400,)]
    assert left.has({"clock": 600, "limit": 400}) and not left.has({"clock": 800, "limit": 400})
    assert space.within(Space(())) == space  # a device that does not answer removes nothing
    other = Space((replace(limit, values=(100, 200), default=200),))
    assert space.within(other) == space


def test_restricting_keeps_the_order_and_the_baseline() -> None:
    cut = SPACE.restricted({"gpu.clock_mhz": (900, 600)})
    assert cut.knob("gpu.clock_mhz").values == (600, 900)
    assert cut.default == SPACE.default
    for choice in ((300, 600), ()):
        with raised(OutOfRange, "default 900"):
            SPACE.restricted({"gpu.clock_mhz": choice})
    with pytest.raises(OutOfRange):
        SPACE.restricted({"gpu.clock_mhz": (700,)})
    with pytest.raises(UnknownKnob):
        SPACE.restricted({"nope": (1,)})


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8, unique=True), st.data())
def test_index_is_the_inverse_of_values(values: list[int], data: st.DataObject) -> None:
    knob = Knob("k", tuple(values), values[0])
    value = data.draw(st.sampled_from(values))
    assert knob.values[knob.index(value)] == value


@given(st.permutations([("a", 1), ("b", 2.5), ("c", "x"), ("d", True)]))
def test_the_key_of_a_setting_does_not_depend_on_its_order(
    items: list[tuple[str, float | str | bool]],
) -> None:
    assert setting_key(dict(items)) == setting_key({"a": 1, "b": 2.5, "c": "x", "d": True})


@pytest.mark.parametrize("breaks", [(4.0, 2.0), (2.0, 2.0), (math.inf,), (-math.inf,), (math.nan,)])
def test_breaks_are_finite_and_ascending(breaks: tuple[float, ...]) -> None:
    with raised(InvalidInput, "breaks of knob 'threads'"):
        Knob("threads", (1, 2, 4), 4, breaks=breaks)
    assert Knob("threads", (1, 2, 4), 4, breaks=(1.0, 2.0)).breaks == (1.0, 2.0)
