"""Spaces become points of the unit cube, and back."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import SPACE, knob, setting
from tuner.bo.encoding import enumerate_grid, grid_of, multiples, scaled
from tuner.core import Setting, Space, Value, setting_key

ascending = (
    st.lists(st.integers(-1000, 100_000), min_size=1, max_size=6, unique=True)
    .map(sorted)
    .map(tuple)
)
words = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True).map(tuple)
switches = st.sampled_from([(False,), (False, True)])


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    lists = draw(st.lists(st.one_of(ascending, words, switches), min_size=1, max_size=3))
    knobs = tuple(knob(f"k{i}", tuple(v), v[-1]) for i, v in enumerate(lists))
    return Space(knobs)


@given(spaces())
def test_every_setting_has_the_row_that_the_space_gives_it(space: Space) -> None:
    grid = enumerate_grid(space)
    assert [setting_key(s) for s in grid.settings] == [setting_key(s) for s in space.grid()]
    assert [grid.row(s) for s in space.grid()] == list(range(space.size))


@given(spaces())
def test_points_fill_the_unit_cube_and_differ(space: Space) -> None:
    points = enumerate_grid(space).points
    varied = sum(len(k.values) > 1 for k in space.knobs)
    assert points.shape == (space.size, varied)
    assert points.dtype == torch.float64
    if varied:
        assert points.min() == 0.0
        assert points.max() == 1.0
        assert len({tuple(p) for p in points.tolist()}) == space.size


@given(ascending)
def test_greater_values_lie_further_out(values: tuple[int, ...]) -> None:
    assert all(a < b for a, b in pairwise(scaled(values)))


def test_a_setting_outside_the_space_has_no_row() -> None:
    assert enumerate_grid(SPACE).row({**setting(), "batch_size": 3}) is None


def test_listed_combinations_keep_their_order() -> None:
    listed: tuple[Setting, ...] = (setting(600, 4), setting(), setting(800, 2))
    grid = enumerate_grid(Space(SPACE.knobs, listed))
    assert grid.settings == listed
    assert grid.row(setting(800, 2)) == 2
    assert grid.row(setting(400, 1)) is None


def test_a_wide_range_is_scaled_by_factors_and_a_narrow_one_by_differences() -> None:
    assert scaled((1, 2, 4, 8)) == pytest.approx((0, 1 / 3, 2 / 3, 1))
    assert scaled((1000, 1100, 1400)) == pytest.approx((0, 0.25, 1))
    assert scaled((0, 10, 40)) == pytest.approx((0, 0.25, 1))


@pytest.mark.parametrize("values", [("eager", "graph", "fused"), (False, True, "auto")])
def test_words_are_equally_far_apart(values: tuple[Value, ...]) -> None:
    assert scaled(values) == (0.0, 0.5, 1.0)


@given(spaces())
def test_ratios_are_one_at_the_baseline_and_always_positive(space: Space) -> None:
    grid = enumerate_grid(space)
    assert grid.ratios.shape == grid.points.shape
    assert bool((grid.ratios > 0.0).all())
    assert bool((grid.ratios[grid.row(space.default)] == 1.0).all())


def test_positive_numbers_are_multiples_of_the_default_and_the_rest_count_up_to_e() -> None:
    assert multiples((300, 600, 1200), 600) == (0.5, 1.0, 2.0)
    assert multiples(("eager", "graph", "fused"), "eager") == pytest.approx(
        (1.0, math.sqrt(math.e), math.e)
    )
    assert multiples((0, 10), 10) == pytest.approx((1.0 / math.e, 1.0))


@given(spaces(), st.data())
def test_some_settings_of_a_space_lie_where_they_lie_in_the_whole(
    space: Space, data: st.DataObject
) -> None:
    whole = enumerate_grid(space)
    rows = data.draw(st.lists(st.integers(0, space.size - 1), min_size=1, unique=True))
    some = grid_of(space, [whole.settings[row] for row in rows])
    assert torch.equal(some.points, whole.points[rows])
    assert torch.equal(some.places, whole.places[rows])
    assert torch.equal(some.ratios, whole.ratios[rows])
    assert [some.row(whole.settings[row]) for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize("names", [("eager", "graph", "fused"), (False, True, "auto"), (0, True)])
def test_every_word_is_at_distance_one_from_the_baselines(
    names: tuple[Value, ...],
) -> None:
    """In any order of the list: a middle name is not nearer to both ends."""
    count = len(names)
    grid = enumerate_grid(Space((knob("mode", names, names[0]),)))
    assert grid.named == (True,)
    apart = torch.cdist(grid.places, grid.places).square()
    expected = 2.0 * (1.0 - torch.eye(count, dtype=torch.float64))
    expected[0, 1:] = expected[1:, 0] = 1.0
    assert torch.allclose(apart, expected)


@given(spaces())
def test_numbers_have_the_place_of_their_point_and_names_but_the_baselines_one_each(
    space: Space,
) -> None:
    grid = enumerate_grid(space)
    varied = [k for k in space.knobs if len(k.values) > 1]
    widths = [
        len(k.values) - 1 if named else 1 for k, named in zip(varied, grid.named, strict=True)
    ]
    assert grid.named == tuple(isinstance(k.values[0], bool | str) for k in varied)
    assert grid.places.shape == (space.size, sum(widths))
    assert grid.places.dtype == torch.float64
    for column, places in enumerate(torch.split(grid.places, widths, dim=1)):
        if grid.named[column]:
            default = varied[column].default
            other = [setting[varied[column].name] != default for setting in grid.settings]
            assert (places > 0.0).sum(dim=1).tolist() == other
        else:
            assert torch.equal(places[:, 0], grid.points[:, column])


def test_the_distance_of_a_name_does_not_depend_on_other_knobs() -> None:
    clocks, modes = knob("clock_mhz", (500, 600, 700), 700), knob("mode", ("a", "b", "c"), "b")
    grid = enumerate_grid(Space((clocks, modes)))
    for mhz in (500, 600, 700):
        here, there = (grid.row({"clock_mhz": mhz, "mode": mode}) for mode in "ab")
        assert float((grid.places[here] - grid.places[there]).norm()) == pytest.approx(1.0)


def test_a_knob_with_one_value_is_not_a_dimension() -> None:
    grid = enumerate_grid(Space((*SPACE.knobs, knob("fan", (3,), 3))))
    assert grid.names == ("gpu.clock_mhz", "batch_size")
    assert grid.settings[0]["fan"] == 3


def test_booleans_are_not_taken_for_numbers_that_compare_equal() -> None:
    enumerate_grid(Space((knob("graph", (0, 1), 0),)))
    grid = enumerate_grid(Space((knob("graph", (False, True), False),)))
    assert [type(s["graph"]) for s in grid.settings] == [bool, bool]
