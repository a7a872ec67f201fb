"""Devices, their workloads, settings, windows and events; the ports by which one is set and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from tuner.compat import StrEnum
from tuner.core.estimates import Metric
from tuner.core.knobs import Setting, SettingKey, Space
from tuner.core.measurements import Measurement, Reading
from tuner.core.plans import Context, Signal
from tuner.core.quantities import Quantities

DEVICE_FIELDS = frozenset({"id", "host", "kind", "board", "workload"})
"""The fields, besides labels, by which devices are selected."""
Now = Callable[[], datetime]
"""Wall time in UTC, for display and for the tuner's own leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device with the workload on it, as its agent registered it.

    `kind` is the class of device (`simulated`, `cpu`, `nvidia`), `board` its model. After a change of
    `driver` or `workload_version` a study's earlier trials no longer count. `space` has the knobs of the
    device and the workload, `metrics` the metrics that can be measured; `cannot` has the reason for each
    knob or metric that is unavailable. `shared` describes other users of the hardware whose energy is
    metered; empty: the device is not shared. `signals` are the signals that a plan can follow. `labels` are
    the operator's, from agent.toml. An `observed` device is only measured: it has no knob and no actuator.
    """

    id: str
    kind: str
    board: str
    driver: str
    agent: str
    workload: str
    workload_version: str
    space: Space
    metrics: tuple[Metric, ...]
    signals: tuple[Signal, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    observed: bool = False
    seen_at: datetime

    @property
    def host(self) -> str:
        """The device's host: the part of its id after the `@`."""
        return self.id.rpartition("@")[2]

    def trait(self, name: str) -> str | None:
        """Return the value of one of `DEVICE_FIELDS` or of a label, None if it lacks the label."""
        own = getattr(self, name) if name in DEVICE_FIELDS else self.labels.get(name)
        return None if own is None else str(own)

    def metric(self, name: str) -> Metric | None:
        """Return the metric of that name, None if it is not measured."""
        return next((m for m in self.metrics if m.name == name), None)

    @property
    def quantities(self) -> Quantities:
        """The quantities of its metrics, by name."""
        return {m.name: m.quantity for m in self.metrics}


class Level(StrEnum):
    """The order from which a device has its setting.

    After a trial the hold applies, and after the hold the original or the failsafe setting.
    """

    TRIAL = "trial"
    HOLD = "hold"
    ORIGINAL = "original"
    FAILSAFE = "failsafe"
    """An explicit setting in place of the original, for devices under a power cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The last known setting of a device, and its level.

    A hold has its study and revision.
    """

    device: str
    setting: Setting
    level: Level
    at: datetime
    study: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One window measured outside any trial: while a setting was held, or of an observed device.

    `study` is empty for a device that is only observed. `speaks_s` is as in a `MetricSample`.
    """

    study: str
    device: str
    setting: Setting
    measurement: Measurement
    at: datetime
    speaks_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One metric of one held window: a short form for queries over thousands of windows.

    `mean` and `stderr` are in the metric's unit. `at` is the time when the tuner received the window, None
    if unknown. `speaks_s` is the time in s for which the agent lets it count, None if unknown.
    """

    started_at: datetime
    seconds: float
    setting: SettingKey
    context: Context
    completed: int
    mean: float
    stderr: float
    at: datetime | None = field(default=None, compare=False)
    speaks_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPoint:
    """One metric over one window or several in a row: the mean, the least and the greatest of their means.

    `at` is the mean of the windows' starts. An empty `device` means every device of the study.
    """

    study: str
    device: str
    metric: str
    at: datetime
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCourse:
    """One metric over a device's last windows: each one's start as Unix time and its mean, by start.

    An empty `device` means every device of the study.
    """

    study: str
    device: str
    metric: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of the operator's log. Later events have greater values of `id`; 0: not stored yet."""

    at: datetime
    kind: str
    text: str
    study: str = ""
    device: str = ""
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The progress of a destination of notifications through the events.

    `event` is the id of the last event that was delivered or given up. `attempts` is the number of failed
    attempts to deliver the next one, `why` the last failure's reason; the next attempt is at `next_at`.
    `given_up` counts the events that were never delivered.
    """

    destination: str
    event: int
    attempts: int = 0
    next_at: datetime | None = None
    why: str = ""
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerReplica:
    """The last report of one tuner process that works on a database.

    `leads` is whether it does the common tasks, which only one process does. `bus_lag_s` is the time that
    its own notice took to return through the database, None if it receives no notices. `agents` counts the
    devices whose last message went to this process, by protocol version. `token_mark` differs between
    tuners with different token files. `cpu_s` is the CPU time used until `seen_at`, `memory_bytes` the
    memory in use then.
    """

    id: str
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    leads: bool
    bus_lag_s: float | None
    agents: Mapping[int, int]
    token_mark: str
    cpu_s: float
    memory_bytes: int


class Topic(StrEnum):
    """The subject of a notice."""

    ORDERS = "orders"
    """A study changed its phase, or a trial began or ended: the orders of its devices may have changed."""
    EVENTS = "events"
    """The operator's log has a new entry."""
    DEVICES = "devices"
    """The recorded setting of a device has changed, or whether it takes orders."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A hint that stored data may have changed; it does not contain the change.

    `devices` are the devices concerned; empty: all devices of `study`, or, if that is empty, all devices.
    """

    topic: Topic
    study: str = ""
    devices: tuple[str, ...] = ()

    @classmethod
    def of(cls, event: Event) -> Notice:
        """Return the notice of a stored event."""
        return cls(Topic.EVENTS, event.study, (event.device,) if event.device else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStop:
    """The operator's order to set every device, or `device`, to its original setting until it is lifted.

    `back` are the devices that have since reported their original setting.
    """

    at: datetime
    who: str
    why: str = ""
    back: frozenset[str] = frozenset()
    device: str = ""

    def __str__(self) -> str:
        order = "released" if self.device else "stop-all"
        return f"{order} by {self.who}{f': {self.why}' if self.why else ''}"


def by_reason(cannot: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names of unavailable knobs and metrics, grouped by reason, with each reason."""
    names: dict[str, list[str]] = {}
    for name, why in cannot.items():
        names.setdefault(why, []).append(name)
    return [(", ".join(group), why) for why, group in names.items()]


class Clock(Protocol):
    """A monotonic clock in seconds that can sleep. Simulated devices provide their own."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed moment; they never decrease."""

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""


class Actuator(Protocol):
    """Sets one part of a setting."""

    def read(self) -> Setting:
        """Return the setting in force, with every knob of the part.

        Raises:
            ActuationError: the setting cannot be read.
        """

    def apply(self, setting: Setting) -> None:
        """Put the setting in force, so that `read()` then agrees with it.

        Knobs that the setting does not name keep their values. Applying the setting in force again changes
        nothing.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit the knobs; nothing was changed.
            ActuationError: the setting could not be put in force; `read()` returns the actual one.
        """


class Window(Protocol):
    """An open measuring window."""

    def read(self) -> Reading:
        """Return the reading of the window so far."""

    def stop(self) -> Reading:
        """Close the window and return its reading; a second call returns the same reading.

        Raises:
            MeasurementError: the meter failed, or one of its counters decreased.
        """


class Meter(Protocol):
    """Measures one part, without the permissions that setting it requires."""

    def start(self) -> Window:
        """Open a window now.

        Raises:
            MeasurementError: the meter does not answer.
        """
