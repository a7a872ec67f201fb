"""What an agent has opened on its host: one device or one workload, ready to be set and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tuner.core import ActuationError, Actuator, Clock, Meter, Metric, Setting, Space


def nothing_to_close() -> None:
    """Do nothing: for what holds no resources."""


def no_complaint() -> str:
    """Have nothing against what is in force: for what nobody guards."""
    return ""


class NothingToSet:
    """The actuator of a device without knobs."""

    def read(self) -> Setting:
        """Return the empty setting."""
        return {}

    def apply(self, setting: Setting) -> None:
        """Do nothing. Raises UnknownKnob where anything is to be set."""
        for name in setting:
            Space(()).knob(name)


class WorkloadChanged(ActuationError):
    """What runs is not what was attached: former measurements are void; attach anew."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a running workload tells of itself at any moment, windows or not.

    `incarnation` is another word after each start of it. `arrived` counts requests, `in_flight_s` adds
    up the seconds that each has spent in it so far, waiting or served, so that its growth per second
    is how many are in it on average; both begin anew with the incarnation. `inside` is how many are in
    it now, None where it does not tell.
    """

    incarnation: str
    arrived: int
    in_flight_s: float
    inside: int | None = None


class Tenure(Protocol):
    """Somebody else who guards a side, and puts it back when its agent is gone.

    What is applied through the side's actuator is a trial, unless it is confirmed here. Both raise
    ActuationError.
    """

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Keep a setting in force for so long, also for a while without the agent."""
        ...

    def release(self) -> None:
        """Put the side back to its original and let go of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Attached:
    """One side of what is tuned: what it is, what can be set, and how it is set and measured.

    `version` is the driver's or the workload's: a change of it starts a study's evidence afresh.
    `clock` is the side's own time where it has one (simulated and replayed devices), else None.
    `settle_s` is how long to wait after `apply` before measuring. `cannot` says in words what cannot
    be set or measured here and why. `source` says in words where its numbers come from (`our load
    generator, closed loop of 4`); empty: the side's own meter. `tenure` is there where somebody else
    guards the side; `complaint` then says in words what they have against what is in force. `pulse` is
    there where a running workload tells of itself; it raises DeviceLost where that is away, and
    WorkloadChanged where another one has taken its place. `crowded` is there where it can also be told to
    wait until so many requests are inside, or so many seconds.

    A meter's window gives finished metrics (`latency_p99_ms`, `throughput_per_s`,
    `arrival_rate_per_s`) and totals. What is per item the agent derives from the totals of both
    sides, for the metrics that a side lists (`energy_j`, `power_w`, `cpu_time_ms`,
    `throughput_per_s`). A side lists `arrival_rate_per_s` only where load arrives at a rate of its own,
    whatever the setting (open loop, production): such rates are compared.
    """

    name: str
    kind: str
    board: str
    version: str
    space: Space
    metrics: tuple[Metric, ...]
    actuator: Actuator
    meter: Meter
    clock: Clock | None = None
    settle_s: float = 0.0
    cannot: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    tenure: Tenure | None = None
    complaint: Callable[[], str] = no_complaint
    pulse: Callable[[], Pulse] | None = None
    crowded: Callable[[int, float], Pulse] | None = None
    close: Callable[[], None] = nothing_to_close
