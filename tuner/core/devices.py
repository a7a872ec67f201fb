"""Devices and workloads as the tuner knows them: plain descriptions, no handles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tuner.compat import StrEnum
from tuner.core.knobs import Setting, SettingKey, Space
from tuner.core.measurements import Measurement, Metric
from tuner.core.plans import Context, Signal
from tuner.core.quantities import Quantities

__all__ = [
    "DEVICE_FIELDS",
    "Applied",
    "Delivery",
    "Device",
    "Event",
    "FleetStop",
    "Level",
    "MetricCourse",
    "MetricSample",
    "Notice",
    "Observation",
    "Topic",
    "TunerReplica",
    "WindowPoint",
    "by_reason",
]


DEVICE_FIELDS = frozenset({"id", "host", "kind", "board", "workload"})
"""What devices are selected by beside their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device with the workload on it, as its agent registered it.

    `kind` is the class of device (`simulated`, `cpu`, `nvidia`), `board` what it is, `driver` and
    `workload_version` what a change of which starts a study's evidence afresh. `space` has the knobs
    of both parts, `metrics` what can be measured here; `cannot` says in words what cannot and why.
    `shared` says who else uses what its energy is counted of; empty: it is not shared. `signals` is
    what a plan can go by. `labels` are the operator's own words for it, from agent.toml.
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
    seen_at: datetime

    @property
    def host(self) -> str:
        """The host that it is on: what its id has behind the `@`."""
        return self.id.rpartition("@")[2]

    def trait(self, name: str) -> str | None:
        """Return one of `DEVICE_FIELDS` or a label by its name, None where it has no such label."""
        own = getattr(self, name) if name in DEVICE_FIELDS else self.labels.get(name)
        return None if own is None else str(own)

    def metric(self, name: str) -> Metric | None:
        """Return the metric of that name, None where it is not measured."""
        return next((m for m in self.metrics if m.name == name), None)

    @property
    def quantities(self) -> Quantities:
        """What its metrics mean, by name."""
        return {m.name: m.quantity for m in self.metrics}


class Level(StrEnum):
    """By what right a device is set as it is; when one ends, the next holds."""

    TRIAL = "trial"
    HOLD = "hold"
    ORIGINAL = "original"
    FAILSAFE = "failsafe"
    """An explicit setting in place of the original, for devices under a power cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a device was last known to be set to, and by what right.

    A hold carries its study and revision.
    """

    device: str
    setting: Setting
    level: Level
    at: datetime
    study: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One window measured while a setting was held, outside any trial."""

    study: str
    device: str
    setting: Setting
    measurement: Measurement
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """What one held window showed of one metric: enough for a query over thousands of them.

    `mean` and `stderr` are the metric's, in its unit; `at` is when the tuner heard of it, None where
    that is not known.
    """

    started_at: datetime
    seconds: float
    setting: SettingKey
    context: Context
    completed: int
    mean: float
    stderr: float
    at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPoint:
    """One metric over one window or several in a row: the mean of their means, the least and the most.

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
    """Something that happened, for the operator's log. `id` grows as they are stored; 0: not yet."""

    at: datetime
    kind: str
    text: str
    study: str = ""
    device: str = ""
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far a destination of notifications has received the events.

    `event` is the last that is done with. `attempts` of the next one have failed, the last for `why`;
    it is tried again at `next_at`. `given_up` counts those that were never taken.
    """

    destination: str
    event: int
    attempts: int = 0
    next_at: datetime | None = None
    why: str = ""
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerReplica:
    """One tuner's process at work on a database, as it last reported.

    `leads` says whether it does what one alone does for all. `bus_lag_s` is how long a notice took it
    to hear itself through the database, None where it hears nothing. `agents` counts the devices that it
    heard last, by the protocol they speak. `token_mark` tells tuners of different token files apart. By
    `seen_at` the process has used `cpu_s` seconds of processors, and has `memory_bytes`.
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
    """What a notice is about."""

    ORDERS = "orders"
    """A study moved, or a trial began or ended: its devices may have other orders."""
    EVENTS = "events"
    """The operator's log has a further entry."""
    DEVICES = "devices"
    """What a device is set to, or whether it takes orders, is stored again."""


@dataclass(frozen=True, slots=True)
class Notice:
    """That there may be something new: worth a look, and nothing more.

    `devices` are those that it concerns; with a study alone all of the study's, with neither all.
    """

    topic: Topic
    study: str = ""
    devices: tuple[str, ...] = ()

    @classmethod
    def of(cls, event: Event) -> Notice:
        """Return the notice that an event was stored."""
        return cls(Topic.EVENTS, event.study, (event.device,) if event.device else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStop:
    """The operator's order that every device be at its original setting until it is lifted.

    `back` are the devices that have reported since that they are.
    """

    at: datetime
    who: str
    why: str = ""
    back: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"stop-all by {self.who}{f': {self.why}' if self.why else ''}"


def by_reason(cannot: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what cannot be set or measured, the names of one reason together, with the reason."""
    names: dict[str, list[str]] = {}
    for name, why in cannot.items():
        names.setdefault(why, []).append(name)
    return [(", ".join(group), why) for why, group in names.items()]
