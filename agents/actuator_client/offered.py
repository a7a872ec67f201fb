"""The knobs that an actuator grants, as a space to tune in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.core import Cost, Knob, Part, Role, Value

RESTART = Cost(seconds=10.0, restart=True)
"""Ours, until a change was measured."""
Choose = Callable[[str, Sequence[Value], Value], Sequence[Value]]
"""Returns which of a knob's granted values are worth trying; the last argument is its default."""


def kind_of(knob: str) -> str:
    """Return what a knob of one of several clock domains is called: `cpu.max_mhz.4` is `cpu.max_mhz`."""
    return knob.rstrip(".0123456789")


def granted_knobs(
    about: Mapping[str, Any],
    originals: Mapping[str, Any],
    choose: Choose,
    roles: Mapping[str, Role],
    ceilings: Mapping[str, float],
) -> Iterator[Knob]:
    """Yield the knobs that are granted, each with its original value as its default.

    Where that is unknown, it is what the configuration says, or the device's highest.
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


def _one_of(shown: Value, offered: Sequence[Value]) -> Value:
    """Return the original values of a knob; of a text of several numbers, the first."""
    if not isinstance(shown, str) or isinstance(offered[0], str):
        return shown
    first = float(shown.split()[0])
    return int(first) if first.is_integer() else first
