"""A space as rows of the unit cube."""

from __future__ import annotations

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

    `points` has one float64 row per setting and one column per knob with more than one value.
    """

    settings: tuple[Setting, ...]
    points: Tensor
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
    rows = {setting_key(s): i for i, s in enumerate(settings)}
    return Grid(settings, points.contiguous(), rows)


def scaled(values: Sequence[Value]) -> tuple[float, ...]:
    """Return where each value of a knob lies between 0 and 1.

    Numbers keep their proportions, logarithmically where they are positive and span a factor of two
    or more (clocks, batch sizes, thread counts); anything else lies evenly in the listed order.
    """
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        return tuple(i / max(1, len(values) - 1) for i in range(len(values)))
    at = torch.tensor(numbers, dtype=torch.float64)
    if at.min() > 0.0 and at.max() / at.min() >= LOG_SPAN:
        at = at.log()
    span = at.max() - at.min()
    placed = (at - at.min()) / span if span > 0.0 else torch.zeros_like(at)
    return tuple(float(p) for p in placed)
