"""What root lets an agent do: actuator.toml, read strictly. What it does not grant is denied."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agents.drivers import Value
from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What may be written to the devices whose UUID matches a pattern, and where they go back to.

    `grant` maps a knob to its least and greatest value. `original` is for knobs that cannot be read;
    `failsafe` is written in place of the original where a device must never be left as it was found.
    """

    match: str
    grant: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    original: Mapping[str, Value] = field(default_factory=dict)
    failsafe: Mapping[str, Value] = field(default_factory=dict)

    def values(
        self, uuid: str, ranges: Mapping[str, Sequence[Value]], cannot: Mapping[str, str]
    ) -> dict[str, tuple[Value, ...]]:
        """Return the values that may be written, knob by knob; none of what the device refuses.

        Raises:
            ConfigError: a grant, an original or a fail-safe value is not within the device's range.
        """
        asked = [(k, bound) for k, bounds in self.grant.items() for bound in bounds]
        for knob, value in [*asked, *self.original.items(), *self.failsafe.items()]:
            where = f"device {self.match!r}, {knob}"
            if knob in cannot:
                continue
            if knob not in ranges:
                raise ConfigError(
                    f"{where}: {uuid} has no such knob",
                    hint=f"it has {', '.join(ranges) or 'none'}",
                )
            low, high = ranges[knob][0], ranges[knob][-1]
            if not _number(value) or not _number(low) or not low <= value <= high:  # type: ignore[operator]
                raise ConfigError(
                    f"{where}: {value!r} is outside the range of {uuid}",
                    hint=f"it supports {low!r} to {high!r}",
                )
        found = {
            knob: tuple(v for v in ranges[knob] if low <= v <= high)  # type: ignore[operator]
            for knob, (low, high) in self.grant.items()
            if knob not in cannot
        }
        for knob, values in found.items():
            if not values:
                raise ConfigError(f"device {self.match!r}, {knob}: no supported value is granted")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorConfig:
    """Everything the actuator can be told, with its defaults. Times are in seconds.

    `lease_s` is the longest a trial lives without a renewal, `agent_grace_s` how long a hold outlives
    its agent, `deadline_s` how long a driver may take to answer. Members of `group` may connect.
    """

    socket: str = "/run/jouletune/actuator.sock"
    state_dir: str = "/var/lib/jouletune-actuator"
    group: str = "jouletune"
    drivers: tuple[str, ...] = ("nvidia",)
    lease_s: float = 10.0
    agent_grace_s: float = 60.0
    deadline_s: float = 5.0
    devices: tuple[Granted, ...] = ()

    def granted(self, uuid: str) -> Granted:
        """Return what is granted on a device: the first pattern that fits it, else nothing."""
        fits = (d for d in self.devices if fnmatchcase(uuid, d.match))
        return next(fits, Granted(match=uuid))


def load_config(path: Path) -> ActuatorConfig:
    """Read actuator.toml: the fields of ActuatorConfig, and a `[[device]]` table per pattern.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a value does not fit.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    tables = table.pop("device", [])
    _known(str(path), table, {f.name for f in fields(ActuatorConfig)} - {"devices"})
    defaults = ActuatorConfig()
    for key, value in table.items():
        default = getattr(defaults, key)
        good = {
            str: isinstance(value, str),
            float: _number(value) and value > 0,
            tuple: isinstance(value, list) and all(isinstance(v, str) for v in value),
        }
        if not good[type(default)]:
            raise ConfigError(f"{path}: {key} cannot be {value!r}", hint=f"like {default!r}")
        table[key] = type(default)(value)
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: device must be [[device]] tables")
    devices = tuple(_granted(f"{path}: device {n}", d) for n, d in enumerate(tables, 1))
    return ActuatorConfig(devices=devices, **table)


def _granted(where: str, given: object) -> Granted:
    table = _table(where, given)
    _known(where, table, {"match", "grant", "original", "failsafe"})
    match, failsafe = table.get("match"), table.get("failsafe", "original")
    if not isinstance(match, str) or not match:
        raise ConfigError(f"{where} has no match", hint='add match = "GPU-*"')
    if failsafe != "original" and not isinstance(failsafe, dict):
        raise ConfigError(f'{where}: failsafe must be "original" or a table of values')
    bounds: dict[str, tuple[float, float]] = {}
    for knob, span in _table(where, table.get("grant", {})).items():
        _known(f"{where}, {knob}", span, {"min", "max"})
        low, high = span.get("min"), span.get("max")
        if not _number(low) or not _number(high) or low > high:
            raise ConfigError(f"{where}, {knob}: give min and max, min <= max, not {span!r}")
        bounds[knob] = (low, high)
    original = _table(where, table.get("original", {}))
    explicit = {} if failsafe == "original" else _table(where, failsafe)
    return Granted(match=match, grant=bounds, original=original, failsafe=explicit)


def _known(where: str, table: object, known: set[str]) -> None:
    for key in _table(where, table):
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key {key!r}", hint=f"known are {', '.join(sorted(known))}"
            )


def _table(where: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {table!r} is not a table")
    return table


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
