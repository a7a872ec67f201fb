"""Conditions of knobs: valid ones, refused ones, and the settings of a space with them."""

from __future__ import annotations

from collections.abc import Mapping
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
    Setting,
    Space,
    TuningError,
    UnknownKnob,
    Value,
    setting_key,
)

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
