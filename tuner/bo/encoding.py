"""A space as rows of the unit cube."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.core import InvalidInput, Setting, SettingKey, Space, Value, setting_key

MOST_ROWS = 10_000
"""Spaces up to this size are enumerated, so that the best row is found exactly."""

LOG_SPAN = 2.0
"""Positive knobs whose values span at least this factor are scaled logarithmically."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Every setting of a space in the order of `Space.grid()`, and its point of the unit cube.

    `points` has one float64 row per setting and one column per knob with more than one value; `names`
    are those knobs.
    `spans` says what the length of each column stands for: the logarithm of the factor between the
    least and the greatest value, 1 for knobs that are no positive numbers.
    """

    names: tuple[str, ...]
    settings: tuple[Setting, ...]
    points: Tensor
    spans: Tensor
    rows: Mapping[SettingKey, int]

    def row(self, setting: Setting) -> int | None:
        """Return the row of a setting, None where the space does not have it."""
        return self.rows.get(setting_key(setting))


def enumerate_grid(space: Space) -> Grid:
    """Return the whole space as points of the unit cube.

    Raises:
        InvalidInput: the space has more than 10,000 settings.
    """
    if space.size > MOST_ROWS:
        raise InvalidInput(
            f"the space has {space.size} settings, more than the {MOST_ROWS} this policy can search",
            hint="leave out knobs, or list fewer values for them",
        )
    settings = tuple(space.grid())
    varied = [k for k in space.knobs if len(k.values) > 1]
    columns = []
    for knob in varied:
        place = dict(zip(knob.values, scaled(knob.values), strict=True))
        columns.append([place[s[knob.name]] for s in settings])
    points = torch.tensor(columns, dtype=torch.float64).reshape(len(varied), len(settings)).T
    spans = torch.tensor([span(k.values) for k in varied], dtype=torch.float64)
    rows = {setting_key(s): i for i, s in enumerate(settings)}
    return Grid(tuple(k.name for k in varied), settings, points.contiguous(), spans, rows)


def scaled(values: Sequence[Value]) -> tuple[float, ...]:
    """Return where each value of a knob lies between 0 and 1.

    Numbers keep their proportions, logarithmically where they are positive and span a factor of two
    or more (clocks, batch sizes, thread counts); anything else lies evenly in the listed order.
    """
    numbers = _numbers(values)
    if len(values) < 2 or numbers is None:
        return tuple(i / max(1, len(values) - 1) for i in range(len(values)))
    if min(numbers) > 0.0 and max(numbers) / min(numbers) >= LOG_SPAN:
        numbers = [math.log(n) for n in numbers]
    least, greatest = min(numbers), max(numbers)
    return tuple((n - least) / (greatest - least) for n in numbers)


def span(values: Sequence[Value]) -> float:
    """Return the logarithm of the factor that positive numbers span, 1 for any other values."""
    numbers = _numbers(values)
    if numbers is None or min(numbers) <= 0.0:
        return 1.0
    return math.log(max(numbers) / min(numbers))


def _numbers(values: Sequence[Value]) -> list[float] | None:
    if any(isinstance(v, bool | str) for v in values):
        return None
    return [float(v) for v in values]
