"""A knob that is a property of a systemd unit: set until the next boot, verified in the kernel.

Source: systemd.resource-control(5), and the kernel's cgroup-v2.rst for the format of each
attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agents.host.processes import commands
from agents.workloads.http.knob_config import UnitProperty
from agents.workloads.http.reading import is_at, settle, unlisted
from tuner.core import ActuationError, Clock, Knob, Value

INFINITY = "infinity"
CGROUPS = Path("/sys/fs/cgroup")
SPAN_US = MappingProxyType({"us": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6})


@dataclass(frozen=True, slots=True)
class Resource:
    """The forms of one property: set, reported by systemd, enforced by the kernel.

    `shown` is the property that reports it, `parse` converts that to our value, `attribute` is the
    file in the unit's cgroup, and `kernel` converts its content to our value.
    """

    shown: str
    attribute: str
    parse: Callable[[str], str]
    kernel: Callable[[str], str]
    suffix: str = ""


def _number(text: str) -> str:
    """Return a whole number, or infinity for systemd's and the kernel's "not set"."""
    return text if text.isdigit() and int(text) < commands.NOT_SET else INFINITY


def _weight(text: str) -> str:
    """Return a weight; an unset one is 100, the kernel's default."""
    number = _number(text.strip().removeprefix("default "))
    return "100" if number == INFINITY else number


def _percent(span: str) -> str:
    """Return a span of CPU time per second, like `1s 500ms`, in percent of one CPU."""
    parts = re.findall(r"([0-9.]+)(min|ms|us|h|s)", span)
    if not parts:
        return INFINITY
    return f"{sum(float(n) * SPAN_US[unit] for n, unit in parts) / 10**4:g}"


def _quota(text: str) -> str:
    """Return the kernel's `QUOTA PERIOD` in percent of one CPU."""
    quota, _, period = text.partition(" ")
    return f"{100 * int(quota) / int(period):g}" if quota.isdigit() else INFINITY


def _cpus(text: str) -> str:
    """Return a list of CPUs with all ranges expanded."""
    cpus: set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return ",".join(map(str, sorted(cpus))) or INFINITY


RESOURCES: Mapping[str, Resource] = MappingProxyType(
    {
        "CPUQuota": Resource("CPUQuotaPerSecUSec", "cpu.max", _percent, _quota, "%"),
        "CPUWeight": Resource("CPUWeight", "cpu.weight", _weight, _weight),
        "AllowedCPUs": Resource("AllowedCPUs", "cpuset.cpus", _cpus, _cpus),
        "IOWeight": Resource("IOWeight", "io.weight", _weight, _weight),
        "MemoryHigh": Resource("MemoryHigh", "memory.high", _number, _number),
        "MemoryMax": Resource("MemoryMax", "memory.max", _number, _number),
        "TasksMax": Resource("TasksMax", "pids.max", _number, _number),
    }
)
"""The properties that can be a knob: a unit's resources, never its programs."""


class KnobInUnit:
    """Set one property of a unit by `systemctl set-property --runtime`, and read it back.

    systemd reports the configured value; the unit's cgroup, if readable, proves that the kernel has
    it (`proof`).
    """

    def __init__(
        self, knob: Knob, unit: UnitProperty, clock: Clock, cgroups: Path = CGROUPS
    ) -> None:
        self.knob = knob
        self._unit, self._clock, self._cgroups = unit, clock, cgroups
        self._resource = RESOURCES[unit.property]

    def read(self) -> Value:
        """Return the value in force. Raises ActuationError: unlisted, or unlike the kernel's."""
        resource = self._resource
        shown = commands.unit_properties(self._unit.name, resource.shown, "ControlGroup")
        now = resource.parse(shown[resource.shown])
        kernel = self._in_kernel(shown["ControlGroup"])
        if kernel is not None and kernel != now:
            raise ActuationError(
                f"systemd says {self._unit.property}={now} of {self._unit.name}, but its "
                f"{resource.attribute} is at {kernel}",
                hint="another program changes it, or the value exceeds this machine",
            )
        for value in self.knob.values:
            if self._as_reported(value) == now:
                return value
        raise unlisted(f"{self._unit.property} of {self._unit.name}", now)

    def is_at(self, value: Value) -> bool:
        """Return whether this is the value in force. Raises ActuationError."""
        return is_at(self.read, value)

    def set(self, value: Value) -> None:
        """Put a value in force and read it back. Raises ActuationError."""
        text = "" if value == INFINITY else f"{value}{self._resource.suffix}"
        words = ("set-property", "--runtime", self._unit.name, f"{self._unit.property}={text}")
        commands.systemctl(*words)
        settle(self._unit.name, self.knob, self.read, value, self._clock)

    def unproven(self) -> str:
        """Return the reason why the kernel's value is unproven; empty if the unit's cgroup shows it."""
        group = commands.unit_properties(self._unit.name, "ControlGroup")["ControlGroup"]
        if self._in_kernel(group) is not None:
            return ""
        return (
            f"systemd accepts {self._unit.property} of {self._unit.name}, but this host shows no "
            f"{self._resource.attribute} for it (cgroup v2 and its controller are needed)"
        )

    def _in_kernel(self, group: str) -> str | None:
        """Return the kernel's value; None if the cgroup cannot be read."""
        if not group:
            return None
        try:
            text = (self._cgroups / group.lstrip("/") / self._resource.attribute).read_text()
            return self._resource.kernel(text.strip())
        except (OSError, ValueError):
            return None

    def _as_reported(self, value: Value) -> str:
        """Return a value in the form that systemd reports."""
        if value == INFINITY:
            return INFINITY
        return _cpus(str(value)) if self._resource.parse is _cpus else f"{value}"
