"""Knobs, settings and spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raised
from tuner.core import (
    Condition,
    InvalidInput,
    Knob,
    OutOfRange,
    Part,
    Setting,
    Space,
    TuningError,
    UnknownKnob,
    Value,
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


WORKERS = Knob("workers", (0, 2, 4), 0)
PREFETCH = Knob("prefetch", (2, 4, 8), 2, condition=Condition.parse("workers > 0"))
PINNED = Knob("pinned", (False, True), False, condition=Condition.parse("prefetch >= 4"))
LOADER = Space((WORKERS, PREFETCH))

OPS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
NAMES = st.from_regex(r"[a-z][a-z0-9_.]{0,8}", fullmatch=True)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.from_regex(r"[a-z][a-z0-9 _-]{0,8}[a-z0-9]", fullmatch=True)
SPACES = st.text(" ", max_size=3)


@given(NAMES, OPS, NUMBERS, SPACES)
def test_any_spacing_of_a_written_text_is_read(
    name: str, op: str, value: float, space: str
) -> None:
    read = Condition.parse(f"{space}{name}{space}{op}{space}{value}{space}")
    assert read == Condition(name, op, str(value))
    assert Condition.parse(str(read)) == read


@given(NAMES, st.sampled_from(["==", "!="]), WORDS)
def test_a_condition_on_a_word_tests_equality(name: str, op: str, word: str) -> None:
    read = Condition.parse(f"{name} {op} {word}")
    assert Condition.parse(str(read)) == read
    assert read.holds(word) is (op == "==")
    assert read.holds(word + "x") is (op == "!=")


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        read = Condition.parse(text)
    except InvalidInput as error:
        assert error.hint
    else:
        assert Condition.parse(str(read)) == read
        for value in (True, False, 0, 2.5, "", "fast"):
            assert read.holds(value) in (True, False)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x > 2", {3: True, 2: False, "3": True, "fast": False}),
        ("x <= 0.5", {True: False, False: False, 0.5: True}),
        ("x <= 2", {2: True, 3: False}),
        ("x == 8", {8: True, "8": True, "8.0": True, 9: False}),
        ("x == true", {True: True, False: False, "true": True}),
        ("x != False", {True: True, False: False}),
        ("x==two words", {"two words": True, "two": False}),
    ],
)
def test_it_holds_at_values(text: str, holds: Mapping[Value, bool]) -> None:
    read = Condition.parse(text)
    assert {value: read.holds(value) for value in holds} == holds


@pytest.mark.parametrize("text", ["", "workers", "workers = 1", "> 1", "workers >", "a < b < c"])
def test_an_invalid_condition_is_refused(text: str) -> None:
    with raised(InvalidInput, text):
        Condition.parse(text)


def test_words_have_no_order() -> None:
    with raised(InvalidInput, "mode > fast"):
        Condition.parse("mode > fast")
    with raised(InvalidInput, "~"):
        Condition("mode", "~", "fast")


def test_dead_settings_are_not_in_the_space() -> None:
    assert [tuple(s.values()) for s in LOADER.grid()] == [
        (0, 2), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4), (4, 8),
    ]  # fmt: skip
    assert LOADER.size == 7
    with raised(OutOfRange, "prefetch", "workers > 0"):
        LOADER.check({"workers": 0, "prefetch": 4})
    LOADER.check({"workers": 0, "prefetch": 2})


def test_a_knob_that_depends_on_an_inactive_one_is_inactive() -> None:
    space = Space((PINNED, PREFETCH, WORKERS))
    dead = {"workers": 0, "prefetch": 8, "pinned": True}
    assert space.canonical(dead) == {"workers": 0, "prefetch": 2, "pinned": False}
    assert space.size == len(list(space.grid())) == 11


@pytest.mark.parametrize(
    ("knobs", "error", "named"),
    [
        ((PREFETCH,), UnknownKnob, "workers"),
        ((Knob("a", (1, 2), 1, condition=Condition("a", ">", "1")),), InvalidInput, "itself"),
        (
            (
                Knob("a", (1, 2), 1, condition=Condition("b", ">", "1")),
                Knob("b", (1, 2), 1, condition=Condition("a", ">", "1")),
            ),
            InvalidInput,
            "a -> b -> a",
        ),
    ],
)
def test_conditions_that_fit_no_knobs_are_refused(
    knobs: tuple[Knob, ...], error: type[TuningError], named: str
) -> None:
    with raised(error, named):
        Space(knobs)


def test_a_condition_that_never_holds_is_refused_when_it_is_made() -> None:
    with raised(OutOfRange, "workers > 4"):
        LOADER.conditioned({"prefetch": Condition.parse("workers > 4")})
    with raised(UnknownKnob, "fan"):
        LOADER.conditioned({"fan": Condition.parse("workers > 0")})
    # In a space restricted to settings where it has no effect the knob is fixed, which is valid.
    assert LOADER.restricted({"workers": (0,)}).size == 1


def test_a_listed_space_keeps_only_settings_with_an_effect() -> None:
    free = Space((WORKERS, Knob("prefetch", (2, 4, 8), 2)))
    listed = Space(free.knobs, tuple(free.grid()))
    assert listed.conditioned({"prefetch": Condition.parse("workers > 0")}).size == 7
    with raised(OutOfRange, "prefetch"):
        Space(LOADER.knobs, ({"workers": 0, "prefetch": 2}, {"workers": 0, "prefetch": 4}))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Return a few small knobs, some with a condition on another one, without cycles."""
    knobs = []
    for number in range(draw(st.integers(1, 5))):
        values = tuple(range(draw(st.integers(1, 4))))
        condition = None
        if number and draw(st.booleans()):
            other = draw(st.integers(0, number - 1))
            condition = Condition(f"k{other}", draw(OPS), str(draw(st.integers(-1, 4))))
        default = draw(st.sampled_from(values))
        knobs.append(Knob(f"k{number}", values, default, condition=condition))
    return Space(tuple(draw(st.permutations(knobs))))


@given(spaces())
def test_the_grid_has_all_combinations(space: Space) -> None:
    names = [k.name for k in space.knobs]
    every: list[Setting] = [
        dict(zip(names, v, strict=True)) for v in product(*(k.values for k in space.knobs))
    ]
    live = [s for s in every if space.canonical(s) == s]
    assert [dict(s) for s in space.grid()] == live
    assert space.size == len(live)
    assert space.default in live
    assert {setting_key(space.canonical(s)) for s in every} == {setting_key(s) for s in live}
    for setting in every:
        if setting in live:
            space.check(setting)
        else:
            with raised(OutOfRange, "no effect"):
                space.check(setting)
