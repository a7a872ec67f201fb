"""Knobs from the tables `[[knob]]` of files on this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agents.host.service_files.tables import checked
from tuner import toml
from tuner.core import (
    Condition,
    ConfigError,
    Cost,
    InvalidInput,
    Knob,
    Part,
    Role,
    Space,
    TuningError,
    Value,
    reraised,
)

KEYS: dict[str, Any] = {"name": str, "values": list, "role": str}
KEYS |= {"seconds": toml.NUMBER, "restart": bool, "if": str}


def knob_table(
    where: str, table: object, more: Mapping[str, Any] | None = None
) -> tuple[Knob, dict[str, Any]]:
    """Return the knob that a table describes, and all entries of the table.

    `more` gives the kinds of the keys that the table may have besides `KEYS`.

    Raises:
        ConfigError: a key, a value or the role is not valid.
    """
    default = table.get("default") if isinstance(table, dict) else None
    kinds = {**KEYS, **(more or {}), "default": bool if isinstance(default, bool) else object}
    entry = checked(where, table, kinds, "name", "values", "default")
    try:
        cost = Cost(float(entry.get("seconds", 0.0)), entry.get("restart", False))
        values, role = _values(where, entry["values"]), _role(where, entry.get("role"))
        condition = Condition.parse(entry["if"]) if "if" in entry else None
        knob = Knob(
            entry["name"], values, entry["default"], Part.WORKLOAD, cost, role, condition=condition
        )
    except ConfigError:
        raise
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    return knob, entry


def refuse_misfits(where: str, knobs: Sequence[Knob]) -> None:
    """Raise ConfigError if knobs contradict each other, or if one of them can never have an effect."""
    with reraised(ConfigError, TuningError, where):
        Space(tuple(knobs)).refuse_unreached(knob.name for knob in knobs)


def _values(where: str, values: list[Any]) -> tuple[Value, ...]:
    """Return a knob's values. Raises ConfigError: one is not a bool, a number or a string."""
    for value in values:
        if not isinstance(value, bool | int | float | str):
            raise ConfigError(f"{where}: {value!r} cannot be a knob's value")
    return tuple(values)


def _role(where: str, role: str | None) -> Role:
    """Return a knob's role, UNKNOWN for None. Raises ConfigError: there is no such role."""
    if role is not None and role not in list(Role):
        near = get_close_matches(role, list(Role), 1) or list(Role)
        raise ConfigError(f"{where}: there is no role {role!r}", hint=f"roles: {', '.join(near)}")
    return Role.UNKNOWN if role is None else Role(role)
