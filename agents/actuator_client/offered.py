"""The search space of the knobs that an actuator grants."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.core import Cost, Knob, Part, Role, Space, Value

RESTART = Cost(seconds=10.0, restart=True)
"""Our assumption until a change has been measured."""
Choose = Callable[[str, Sequence[Value], Value], Sequence[Value]]
"""Return the granted values of a knob that are worth a trial; the last argument is its default."""


def kind_of(knob: str) -> str:
    """Return a knob's name without its clock domain: `cpu.max_mhz` for `cpu.max_mhz.4`."""
    return knob.rstrip(".0123456789")


def thinned(values: Sequence[Value], most: int) -> Sequence[Value]:
    """Return at most `most` of these values: both ends, and others at equal distances in the list."""
    step = (len(values) - 1) / (most - 1)
    return values if step <= 1 else [values[round(k * step)] for k in range(most)]


def granted_knobs(
    about: Mapping[str, Any],
    originals: Mapping[str, Any],
    choose: Choose,
    roles: Mapping[str, Role],
    ceilings: Mapping[str, float],
) -> Iterator[Knob]:
    """Yield the granted knobs, each with its original value as the default.

    An unknown original is replaced by the configured or the driver's default, else by the highest value.
    """
    for name, shown in originals.items():
        defaults = {**dict(about.get("defaults") or ()), **about["original"]}
        unset = defaults.get(name, about["ranges"][name][-1])
        default = unset if shown is None else _one_of(shown, about["ranges"][name])
        values = choose(name, about["granted"][name], default)
        most = ceilings.get(name)
        if most is not None and isinstance(default, int | float):
            default = min(default, most)
            values = [v for v in values if isinstance(v, int | float) and v <= default]
        role = roles.get(kind_of(name), Role.UNKNOWN)
        of = (Part.WORKLOAD, RESTART) if about.get("restarts") else (Part.DEVICE, Cost())
        yield Knob(name, tuple(sorted({*values, default})), default, *of, role=role)


def without(space: Space, refused: Container[str]) -> Space:
    """Return a space in which each refused knob has its default alone."""
    fixed = (replace(k, values=(k.default,)) if k.name in refused else k for k in space.knobs)
    return Space(tuple(fixed)) if refused else space


def _one_of(shown: Value, offered: Sequence[Value]) -> Value:
    """Return a knob's original value; for a text of several numbers, the first."""
    if not isinstance(shown, str) or isinstance(offered[0], str):
        return shown
    first = float(shown.split()[0])
    return int(first) if first.is_integer() else first
