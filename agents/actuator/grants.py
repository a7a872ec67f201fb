"""The grants in actuator.toml, read strictly: a knob or a value that it does not list is denied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

from tuner.errors import ConfigError
from tuner.toml import NUMBER, checked, read

DRIVERS = ("cpu", "drm", "fake", "jetson", "nvidia", "nvpmodel", "unit")
"""Driver names in actuator.toml: packages of agents.devices whose `knobs.discover` finds the devices."""
SPAN = {"min": NUMBER, "max": NUMBER}
DEVICE = {"match": str, "grant": dict, "original": dict, "failsafe": (dict, str), "budget": dict}
TIMES = dict.fromkeys(
    ("lease_s", "agent_grace_s", "hold_s", "deadline_s", "min_restart_s", "job_absent_s"), NUMBER
)
CONFIG = TIMES | {"socket": str, "state_dir": str, "group": str, "drivers": list, "device": list}
CONFIG |= {"job": dict}
"""The keys of actuator.toml and the type of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The values that may be written to the devices whose UUID matches a pattern, and their fall-backs.

    `grant` maps a knob to its least and greatest value, or to its permitted words. `original` is for knobs
    that cannot be read. `failsafe` replaces the original on a device that must never be left at that; it
    is a cap, and no grant may exceed it. A member of a power budget falls back to `floor`; a device
    without one cannot be a member.
    """

    match: str
    grant: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    original: Mapping[str, int | float | str] = field(default_factory=dict)
    failsafe: Mapping[str, int | float | str] = field(default_factory=dict)
    floor: Mapping[str, int | float] = field(default_factory=dict)

    def values(self, about: Mapping[str, Any]) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
        """Return the values that may be written to a device, by knob, and the errors in its grants.

        `about` is the driver's description of the device. An error in one knob denies only that knob.
        """
        permitted: dict[str, tuple[Any, ...]] = {}
        errors: list[str] = []
        for knob in {**self.grant, **self.original, **self.failsafe}:
            why, offered = self._wrong(knob, about), about["ranges"].get(knob, ())
            if why:
                errors.append(f"{about['uuid']}: {knob} is not granted: {why}")
            elif knob in self.grant:
                permitted[knob] = tuple(v for v in offered if within(v, self.grant[knob]))
        for knob, value in self.floor.items():
            if value not in (values := permitted.get(knob, ("nothing",))):
                why = f"its floor {value!r} is not in {values[0]!r} to {values[-1]!r}, the granted"
                errors.append(f"{about['uuid']}: {knob} keeps no budget: {why}")
        return permitted, errors

    def _wrong(self, knob: str, about: Mapping[str, Any]) -> str:
        """Return the reason that a knob cannot be granted as configured; empty if it can."""
        bounds, span = self.grant.get(knob, ()), about["ranges"].get(knob, ())
        if not span:
            why = dict(about.get("without", ())).get(knob)
            kinds = ", ".join(about["ranges"]) or "no knobs"
            return why or f"{about['uuid']} has no such knob; its knobs: {kinds}"
        named = (*bounds, *(at[knob] for at in (self.original, self.failsafe) if knob in at))
        for value in named:
            if not within(value, span):
                why = f"{value!r} is outside the range of {about['uuid']}"
                return f"{why}; it supports {span[0]!r} to {span[-1]!r}"
        if bounds and not any(within(value, bounds) for value in span):
            return f"no supported value is granted; it supports {span[0]!r} to {span[-1]!r}"
        most: Any = self.failsafe.get(knob)
        if bounds and most is not None and max(map(float, bounds)) > most:
            return f"{bounds[-1]!r} is above the fail-safe; grant at most {most!r}, or raise the fail-safe"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorConfig:
    """The actuator's configuration, with defaults. Times are in seconds.

    `lease_s` is the longest life of a trial without renewal, `agent_grace_s` that of a hold without its
    agent, and `hold_s` that of a hold without a new request. A driver has `deadline_s` to answer. Two
    settings that restart a service are at least `min_restart_s` apart. Members of `group` may connect.
    `jobs` limits the requests of batch jobs; a job's lease ends after `job_absent_s` without a sign of the
    job.
    """

    socket: str = "/run/jouletune/actuator.sock"
    state_dir: str = "/var/lib/jouletune-actuator"
    group: str = "jouletune"
    drivers: Sequence[str] = field(default_factory=lambda: ["nvidia"])
    lease_s: float = 10.0
    agent_grace_s: float = 60.0
    hold_s: float = 604800.0
    deadline_s: float = 5.0
    min_restart_s: float = 60.0
    job_absent_s: float = 600.0
    devices: tuple[Granted, ...] = ()
    jobs: Granted = Granted(match="jobs")

    def granted(self, uuid: str) -> Granted:
        """Return the grants of a device: those of the first matching pattern; empty if none matches."""
        fits = (d for d in self.devices if fnmatchcase(uuid, d.match))
        return next(fits, Granted(match=uuid))


def load_config(path: Path) -> ActuatorConfig:
    """Read actuator.toml: the fields of ActuatorConfig, and a `[[device]]` table per pattern.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a value is not valid.
    """
    table = read(path, CONFIG)
    for key in TIMES.keys() & table.keys():
        if not 0 < table[key] < inf:
            raise ConfigError(f"{path}: {key} cannot be {table[key]!r}")
    if unknown := {str(n).partition(":")[0] for n in table.get("drivers", ())} - {*DRIVERS}:
        hint = f"drivers: {', '.join(DRIVERS)}"
        raise ConfigError(f"{path}: there is no driver {min(unknown)!r}", hint=hint)
    devices = enumerate(table.pop("device", []), 1)
    granted = tuple(_granted(f"{path}: device {number}", device) for number, device in devices)
    job = checked(f"{path}: job", table.pop("job", {}), {"grant": dict})
    jobs = _granted(f"{path}: job", {"match": "jobs", **job})
    return ActuatorConfig(devices=granted, jobs=jobs, **table)


def _granted(where: str, given: object) -> Granted:
    """Return the grants of one table; `where` names it in errors. Raises ConfigError."""
    table = checked(where, given, DEVICE)
    if not table.get("match"):
        raise ConfigError(f"{where} has no match", hint='add match = "GPU-*"')
    if table.get("failsafe", "original") == "original":
        table["failsafe"] = {}
    for knob, given_span in table.get("grant", {}).items():
        if isinstance(given_span, list) and given_span:
            table["grant"][knob] = tuple(map(str, given_span))
            continue
        span = checked(f"{where}, {knob}", given_span, SPAN)
        if span.keys() != SPAN.keys() or not span["min"] <= span["max"]:
            raise ConfigError(f"{where}, {knob}: give min and max with min <= max, not {span!r}")
        table["grant"][knob] = (span["min"], span["max"])
    budget = checked(f"{where}: budget", table.pop("budget", {"floor": {}}), {"floor": dict})
    for name, caps in (("failsafe", table["failsafe"]), ("floor", budget.get("floor", {}))):
        checked(f"{where}: {name}", caps, dict.fromkeys(caps, NUMBER))
    return Granted(**table, **budget)


def within(value: Any, span: Sequence[Any]) -> bool:  # noqa: ANN401 - any value of a TOML file
    """Return whether a value is one of the words of a span, or a number from its first to its last."""
    numbers = {type(value), type(span[0])} <= {int, float}
    return span[0] <= value <= span[-1] if numbers else str(value) in map(str, span)
