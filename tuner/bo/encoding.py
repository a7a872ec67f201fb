"""Settings as rows of the unit cube, and as multiples of the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tuner.core import Knob, Role, Setting, SettingKey, Space, Value, setting_key

MOST_ROWS = 10_000
"""Spaces up to this size are enumerated, so that the best row is found exactly."""
MOST_STEPS = 16
"""The most steps of a long ladder without a known law that are modelled separately. With more
names than this in a space fewer of its settings are modelled together, as the model has a
column for each name."""

Breaks = tuple[tuple[float, ...], ...]
"""For each knob, the multiples of its default beyond which its effect may change."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Some or all settings of a space, and the point of the unit cube of each.

    `points` has one float64 row per setting and one column per knob with more than one value;
    `names` are those knobs, `roles` their roles, `named` whether their values are unordered names.
    `places` is the same with a column for each name but the baseline's instead: all names are as
    far from that one, and none lies between others. `owners` has the knob of each of its columns.
    `ratios` is each value over the baseline's, in the shape of `points`; values that are not
    positive numbers count from 1 to e in the order of their list. `breaks` are those of parallel
    resources.
    """

    names: tuple[str, ...]
    roles: tuple[Role, ...]
    named: tuple[bool, ...]
    settings: tuple[Setting, ...]
    points: Tensor
    places: Tensor
    ratios: Tensor
    rows: Mapping[SettingKey, int]
    owners: tuple[int, ...]
    breaks: Breaks = ()

    def row(self, setting: Setting) -> int | None:
        """Return the row of a setting; None if the grid does not have it."""
        return self.rows.get(setting_key(setting))


def most_rows(space: Space) -> int:
    """Return the most settings of a space that are modelled together, in under 1 GB of memory."""
    names = sum(len(knob.values) for knob in space.knobs if _numbers(knob.values) is None)
    return MOST_ROWS * MOST_STEPS // max(MOST_STEPS, names)


def enumerate_grid(space: Space) -> Grid:
    """Return the whole space in the order of `Space.grid()`; the last few grids are cached."""
    kinds = tuple(type(v) for knob in space.knobs for v in knob.values)
    return _enumerated(space.knobs, tuple(setting_key(s) for s in space.only), kinds)


@lru_cache(maxsize=2)
def _enumerated(knobs: tuple[Knob, ...], only: tuple[SettingKey, ...], _: tuple[type, ...]) -> Grid:
    """Return the grid of a space. The two latest spaces are cached."""
    # The types distinguish spaces that compare equal: 0 and 1 from False and True.
    space = Space(knobs, tuple(dict(key) for key in only))
    return grid_of(space, tuple(space.grid()))


def grid_of(space: Space, settings: Sequence[Setting]) -> Grid:
    """Return some settings of a space as a grid, in their order, on the scales of the whole space."""
    varied = [k for k in space.knobs if len(k.values) > 1]
    named = tuple(_numbers(k.values) is None for k in varied)
    points, places, ratios = [], [], []
    owners: list[int] = []
    for number, (knob, names) in enumerate(zip(varied, named, strict=True)):
        place = dict(zip(knob.values, scaled(knob.values), strict=True))
        ratio = dict(zip(knob.values, multiples(knob.values, knob.default), strict=True))
        chosen = [setting[knob.name] for setting in settings]
        points.append([place[value] for value in chosen])
        ratios.append([ratio[value] for value in chosen])
        if names:
            others = [value for value in knob.values if value != knob.default]
            places += [[float(c == value) for c in chosen] for value in others]
        else:
            places.append(points[-1])
        owners += [number] * (len(places) - len(owners))
    return Grid(
        tuple(k.name for k in varied),
        tuple(k.role for k in varied),
        named,
        tuple(settings),
        _columns(points, len(settings)),
        _columns(places, len(settings)),
        _columns(ratios, len(settings)),
        {setting_key(s): i for i, s in enumerate(settings)},
        tuple(owners),
        tuple(_breaks(k) for k in varied),
    )


def _columns(columns: Sequence[Sequence[float]], rows: int) -> Tensor:
    """Return columns as a table with one row per setting."""
    table = torch.tensor(columns, dtype=torch.float64).reshape(len(columns), rows)
    return table.T.contiguous()


def scaled(values: Sequence[Value]) -> tuple[float, ...]:
    """Return the position of each value of a knob between 0 and 1.

    Numbers keep their proportions, logarithmically where they are positive and span a factor of two
    or more (clocks, batch sizes, thread counts). Other values are spaced evenly in the listed
    order.
    """
    numbers = _numbers(values)
    if len(values) < 2 or numbers is None:
        return tuple(i / max(1, len(values) - 1) for i in range(len(values)))
    if min(numbers) > 0.0 and max(numbers) / min(numbers) >= 2.0:
        numbers = [math.log(n) for n in numbers]
    least, greatest = min(numbers), max(numbers)
    return tuple((n - least) / (greatest - least) for n in numbers)


def multiples(values: Sequence[Value], default: Value) -> tuple[float, ...]:
    """Return each value over the default; unless all are positive numbers, exp of its position."""
    if positive(values):
        return tuple(float(v) / float(default) for v in values)
    places = scaled(values)
    return tuple(math.exp(place - places[values.index(default)]) for place in places)


def _breaks(knob: Knob) -> tuple[float, ...]:
    """Return the breaks between the values of a parallel resource, over its default."""
    if knob.role is not Role.PARALLEL or not positive(knob.values):
        return ()
    values = [float(v) for v in knob.values]
    return tuple(b / float(knob.default) for b in knob.breaks if min(values) <= b < max(values))


def positive(values: Sequence[Value]) -> bool:
    """Return whether all values are positive numbers."""
    numbers = _numbers(values)
    return numbers is not None and min(numbers) > 0.0


def _numbers(values: Sequence[Value]) -> list[float] | None:
    """Return the values as numbers; None if one is a truth value or a text."""
    if any(isinstance(v, bool | str) for v in values):
        return None
    return [float(v) for v in values]
