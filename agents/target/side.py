"""What an agent has opened on its host: one device or one workload, ready to be set and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agents.host.processes.ownership import WorkloadIdentity
from tuner.core import (
    ActuationError,
    Actuator,
    Clock,
    Context,
    Meter,
    Metric,
    Plan,
    Setting,
    Signal,
    Space,
)

HOST_CPU = "host-cpu"
"""The part of the host that a CPU's own meter covers."""


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
    """What runs is not what was attached: former measurements are void; attach again."""


@dataclass(frozen=True, slots=True)
class SignalSample:
    """A signal at one moment, one of the two numbers at least.

    `present` is its value now. `integral` adds up the signal over the seconds since what reports it was
    started, so that its growth per second is the exact mean between two looks; `incarnation` is another
    word after each such start, empty where unknown.
    """

    present: float | None = None
    integral: float | None = None
    incarnation: str = ""


class LiveSignal(Protocol):
    """A signal that can be read at any moment, windows or not.

    Raises DeviceLost where what reports it is away, WorkloadChanged where another has taken its place.
    """

    @property
    def signal(self) -> Signal:
        """Its name and unit."""
        ...

    def read(self) -> SignalSample:
        """Return it as it is now."""
        ...


@runtime_checkable
class WaitingSignal(Protocol):
    """A live signal that can also be waited for."""

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        """Return it when it is at least `value`, or after `seconds`."""
        ...


@runtime_checkable
class HoldGuard(Protocol):
    """An actuator behind which another program guards a side, and restores it when its agent is gone.

    What is applied is a trial there, unless it is confirmed here.
    """

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Keep a setting in force for so long, also for a while without the agent.

        Raises:
            ActuationError: it is not kept.
        """
        ...

    def release(self) -> None:
        """Restore the side to its original and release it. Raises ActuationError."""
        ...

    def conflict(self) -> str:
        """Return what they have against what is in force; empty where nothing."""
        ...


@runtime_checkable
class Narrows(Protocol):
    """An actuator that finds out at work that less can be set than was offered."""

    def left(self) -> tuple[Space, Mapping[str, str]]:
        """Return what is still offered, knob by knob, and why a knob stays at its default."""
        ...


@runtime_checkable
class Restartable(Protocol):
    """An actuator of a workload that may be started again, which loses the setting."""

    def incarnation(self) -> str:
        """Return another word after each start.

        Raises:
            DeviceLost: it does not answer.
            WorkloadChanged: it was started again as another version.
        """
        ...


@runtime_checkable
class FollowsPlans(Protocol):
    """An actuator of a workload that goes by a plan of its own knobs itself, from step to step.

    `apply` ends that. Both raise ActuationError.
    """

    def follow(self, plan: Plan) -> bool:
        """Put a plan in force; False, and nothing is changed, where it cannot go by its signal."""
        ...

    def followed(self) -> Plan | None:
        """Return the plan in force, None where a setting is."""
        ...


@runtime_checkable
class FallsBack(Protocol):
    """An actuator that follows plans, and gives its table up for plain decoding where that stops to pay."""

    def look(self) -> None:
        """Take a look at what shows that. Raises ActuationError."""
        ...


@runtime_checkable
class OffersLoad(Protocol):
    """A meter that sends the load itself, and can produce another one."""

    @property
    def context(self) -> Context:
        """The load that it sends, as far as that does not depend on the setting."""
        ...

    def offering(self, context: Context) -> Meter:
        """Return the meter at a load. Raises InvalidInput where it cannot offer that."""
        ...


@runtime_checkable
class MeasuresRuns(Protocol):
    """A meter whose windows are complete runs of a program: each a batch, and none to warm up by."""

    runs: int


@runtime_checkable
class WaitsForRuns(Protocol):
    """An open window whose batches end by themselves."""

    def wait(self, seconds: float) -> bool:
        """Wait so long for the end of a batch; return whether it has come. Raises MeasurementError."""
        ...


@runtime_checkable
class NamesItsSource(Protocol):
    """A meter that finds out at work where its numbers come from."""

    @property
    def source(self) -> str:
        """Where its numbers come from now, in words."""
        ...


@runtime_checkable
class TellsForeignLoad(Protocol):
    """A meter of a device that several programs may use at a time, each counted on its own there."""

    def attribute_to(self, workload: WorkloadIdentity) -> None:
        """Update the identified processes of the workload; everything else may be foreign."""
        ...


@runtime_checkable
class Closing(Protocol):
    """An actuator or a meter that holds something open."""

    def close(self) -> None:
        """Release it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of what is tuned: what it is, what can be set, and how it is set and measured.

    `version` is the driver's or the workload's: a change of it starts a study's evidence afresh.
    `clock` is the side's own time where it has one (simulated and replayed devices), else None.
    `settle_s` is how long to wait after `apply` before measuring. `cannot` says in words what cannot
    be set or measured here and why. `source` says in words where its numbers come from (`our load
    generator, closed loop of 4`); empty: the side's own meter. `shared` says who else uses what is
    measured here; empty: none is reported. `signals` is what a plan can go by. `unproven` says of knobs
    that are set without being read back from what uses them, why. `warm_up_s` is how long the load is to be
    on before a window counts, at least. `spec` opens this very side again, at any place;
    empty: what it was opened by does.

    What else a side can do, its actuator and its meter say by what they are: `HoldGuard`, `Restartable`,
    `FollowsPlans`, `OffersLoad`, `MeasuresRuns`, `TellsForeignLoad`, `Closing`.

    A meter's window gives finished metrics (`latency_p99_ms`, `throughput_per_s`,
    `arrival_rate_per_s`) and totals. What is per item the agent derives from the totals of all
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
    shared: str = ""
    signals: tuple[LiveSignal, ...] = ()
    unproven: Mapping[str, str] = field(default_factory=dict)
    warm_up_s: float = 0.0
    spec: str = ""
    identity: WorkloadIdentity = field(default_factory=WorkloadIdentity)
    """How a workload's processes are identified."""
    energy_of: frozenset[str] = frozenset()
    """The parts of the host that its energy covers; what another side covers, too, is not added twice."""

    @property
    def offered(self) -> Space:
        """What of its space is still worth trying."""
        return self.actuator.left()[0] if isinstance(self.actuator, Narrows) else self.space

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The knobs that are offered no more, and why."""
        return self.actuator.left()[1] if isinstance(self.actuator, Narrows) else {}

    @property
    def guard(self) -> HoldGuard | None:
        """Who else guards the side, None where there is none."""
        return self.actuator if isinstance(self.actuator, HoldGuard) else None

    def close(self) -> None:
        """Release what the side holds open."""
        for part in (self.meter, self.actuator):
            if isinstance(part, Closing):
                part.close()
