"""Combines the spaces of several sides, and computes the direction of a device's change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tuner.core import Part, Role, Setting, Space


def together(spaces: Sequence[Space]) -> Space:
    """Return the space of every combination of these spaces' settings."""
    knobs = tuple(knob for space in spaces for knob in space.knobs)
    if any(knob.role is Role.CORE_CLOCK for knob in knobs):  # beside a GPU a CPU only feeds it
        feeds = {Role.CPU_CLOCK: Role.HOST_CLOCK}
        knobs = tuple(replace(knob, role=feeds.get(knob.role, knob.role)) for knob in knobs)
    if not any(space.only for space in spaces):
        return Space(knobs)
    return Space(knobs, tuple(_products(spaces)))


def speed_change(space: Space, before: Setting, after: Setting) -> float:
    """Return the direction of a change of a device; below 0 is slower.

    Each numeric knob of the device, and its boost knob, counts with the share of its list by which it
    moves up; lists of clocks and power limits go from slow to fast. The result is the sum. A value
    outside the list, in force before anything was set, counts as the default. Our choice: no source
    gives an order for mixed moves.
    """
    change = 0.0
    for knob in space.knobs:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in knob.values)
        ordered = numeric or knob.role is Role.BOOST
        if knob.part is not Part.DEVICE or not ordered or len(knob.values) < 2:
            continue
        start, end = (
            s[knob.name] if s.get(knob.name) in knob.values else knob.default
            for s in (before, after)
        )
        change += (knob.index(end) - knob.index(start)) / (len(knob.values) - 1)
    return change


def _products(spaces: Sequence[Space]) -> Iterator[Setting]:
    """Yield every combination of the spaces' settings."""
    if not spaces:
        yield {}
        return
    for first in spaces[0].grid():
        for rest in _products(spaces[1:]):
            yield {**first, **rest}
