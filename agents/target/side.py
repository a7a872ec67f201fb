"""A side: one device or one workload opened on this host, ready to be set and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol, runtime_checkable

from agents.actuator_client.caps import DeviceCaps
from agents.host.processes.ownership import WorkloadIdentity
from tuner.compat import StrEnum
from tuner.core import (
    ActuationError,
    Actuator,
    Clock,
    Context,
    Meter,
    Metric,
    Plan,
    Reading,
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
        """Do nothing. Raises UnknownKnob if the setting has a knob."""
        for name in setting:
            Space(()).knob(name)


class NothingToMeasure:
    """The meter, and its windows, of a device that measures nothing."""

    def start(self) -> NothingToMeasure:
        """Open a window."""
        return self

    def read(self) -> Reading:
        """Return an empty reading."""
        return Reading()

    stop = read


class WorkloadChanged(ActuationError):
    """The running workload is not the attached one: former measurements are void; attach again."""


@dataclass(frozen=True, slots=True)
class SignalSample:
    """A signal at one moment; at least one of the two numbers is given.

    `present` is its current value. `integral` is the signal integrated over the seconds since its
    source was started, so that its growth per second is the exact mean between two readings.
    `incarnation` differs after each such start; empty if unknown.
    """

    present: float | None = None
    integral: float | None = None
    incarnation: str = ""


class LiveSignal(Protocol):
    """A signal that can be read at any moment, with or without a window.

    Raises DeviceLost if its source does not answer, WorkloadChanged if another program has replaced
    it.
    """

    @property
    def signal(self) -> Signal:
        """Its name and unit."""
        ...

    def read(self) -> SignalSample:
        """Return the current value."""
        ...


@runtime_checkable
class WaitingSignal(Protocol):
    """A live signal that can also be waited for."""

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        """Return the first sample that is at least `value`, or the present one after `seconds`."""
        ...


@runtime_checkable
class HoldGuard(Protocol):
    """An actuator whose side is guarded by another program, which restores it if its agent is gone.

    An applied setting is a trial there, unless it is confirmed here.
    """

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Keep a setting in force for a time, also for a while without the agent.

        Raises:
            ActuationError: it is not kept.
        """
        ...

    def release(self) -> None:
        """Restore the side to its original and release it. Raises ActuationError."""
        ...

    def conflict(self) -> str:
        """Return the guard's objection to the setting in force; empty without an objection."""
        ...


@runtime_checkable
class Capped(Protocol):
    """An actuator whose device can be a member of a power budget: its guard keeps the caps."""

    @property
    def caps(self) -> DeviceCaps:
        """Its cap knobs, and its caps over time."""
        ...

    def rest(self) -> Setting | None:
        """Set a member to its original within its caps; called while no setting is tried or held.

        Returns the resulting setting; None if another setting is in force. Raises ActuationError.
        """
        ...


@runtime_checkable
class Narrows(Protocol):
    """An actuator that learns during operation that fewer values can be set than were offered."""

    def left(self) -> tuple[Space, Mapping[str, str]]:
        """Return the space still offered, and the withdrawn knobs, each with the reason."""
        ...


@runtime_checkable
class Restartable(Protocol):
    """An actuator of a workload that may be restarted, which loses the setting."""

    def incarnation(self) -> str:
        """Return an identifier that differs after each start.

        Raises:
            DeviceLost: it does not answer.
            WorkloadChanged: it was restarted as another version.
        """
        ...


@runtime_checkable
class Serves(Protocol):
    """An actuator of a workload that reports whether the workload answers, as it may be starting."""

    def demand_answer(self) -> None:
        """Return if the workload answers a request. Raises ActuationError: it does not answer yet."""
        ...


@runtime_checkable
class RestartsWorkload(Protocol):
    """An actuator of a device whose changes restart the workload; it waits for the first answer."""

    def restarts(self, workload: Side) -> None:
        """Store the workload, whose answer a change then waits for."""
        ...


@runtime_checkable
class FollowsPlans(Protocol):
    """An actuator of a workload that itself follows a plan of its knobs, from step to step.

    `apply` ends that. Both methods raise ActuationError.
    """

    def follow(self, plan: Plan) -> bool:
        """Put a plan in force; return False, with nothing changed, if it cannot use the plan's signal."""
        ...

    def followed(self) -> Plan | None:
        """Return the plan in force, or None if a setting is."""
        ...


Accepted = Mapping[int, tuple[float, float]]
"""The accepted tokens and steps by draft length when a table came into force."""


@runtime_checkable
class FallsBack(Protocol):
    """An actuator that follows plans, and switches to plain decoding while its table does not pay."""

    def look(self, reference: Accepted) -> Accepted:
        """Check whether the table still pays, and switch if needed.

        `reference` is the acceptance measured so far, to compare with; return it, updated by later
        measurements. Raises ActuationError.
        """
        ...


@runtime_checkable
class OffersLoad(Protocol):
    """A meter that sends the load itself, and can produce another one."""

    @property
    def context(self) -> Context:
        """The load that it sends, as far as that is independent of the setting."""
        ...

    def offering(self, context: Context) -> Meter:
        """Return the meter at a load. Raises InvalidInput if it cannot send that."""
        ...


@runtime_checkable
class MeasuresRuns(Protocol):
    """A meter whose windows are complete runs of a program: each run is a batch, without a warm-up."""

    runs: int


@runtime_checkable
class WaitsForRuns(Protocol):
    """An open window whose batches end by themselves."""

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of a batch; return whether it ended.

        Raises MeasurementError.
        """
        ...


@runtime_checkable
class NamesItsSource(Protocol):
    """A meter that learns the origin of its numbers during operation."""

    @property
    def source(self) -> str:
        """The current source of its numbers, as text."""
        ...


@runtime_checkable
class TellsForeignLoad(Protocol):
    """A meter of a device that counts each of several programs separately."""

    def attribute_to(self, workload: WorkloadIdentity) -> None:
        """Update the identified processes of the workload; all others may be foreign."""
        ...


@runtime_checkable
class Closing(Protocol):
    """An actuator or a meter that holds resources."""

    def close(self) -> None:
        """Release it."""
        ...


class IdleState(StrEnum):
    """The state of a workload without requests, by its own process."""

    BUSY = "busy"
    LOADED = "loaded"
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class IdleWorkload:
    """A workload that is idle between windows, as the agent itself sends its load.

    `look` returns its state now. `delay_knob` is the knob of the seconds after which it unloads, if any.
    """

    look: Callable[[], IdleState]
    delay_knob: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredSide:
    """One side of a target as it is measured: its description and its meter; nothing can be set.

    `version` is the driver's or the workload's: a change of it restarts a study's evidence. `clock`
    is the side's own clock if it has one (simulated and replayed devices), else None. `cannot` has the
    knobs and metrics that are not available here, each with the reason. `source` is the origin of its
    numbers as text (`our load generator, closed loop of 4`); empty: the side's own meter. `shared` names
    the other users of the measured resource; empty: none is reported. `signals` are those that a plan can
    use. `warm_up_s` is the least time under load before a window counts. `spec` opens the same side again,
    from any folder; empty: the spec that opened it is used.

    The type of its meter declares further abilities: `OffersLoad`, `MeasuresRuns`, `TellsForeignLoad`,
    `Closing`.

    A meter's window gives finished metrics (`latency_p99_ms`, `throughput_per_s`,
    `arrival_rate_per_s`) and totals. The agent derives metrics per item from the totals of all
    sides, for the metrics that a side lists (`energy_j`, `power_w`, `cpu_time_ms`,
    `throughput_per_s`). A side lists `arrival_rate_per_s` only if load arrives at a rate that no
    setting changes (open loop, production), as such rates are compared.
    """

    name: str
    kind: str
    board: str
    version: str
    metrics: tuple[Metric, ...]
    meter: Meter
    clock: Clock | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    shared: str = ""
    signals: tuple[LiveSignal, ...] = ()
    warm_up_s: float = 0.0
    spec: str = ""
    idle: IdleWorkload | None = None
    identity: WorkloadIdentity = field(default_factory=WorkloadIdentity)
    """Identifies a workload's processes."""
    energy_of: frozenset[str] = frozenset()
    """The parts of the host that its energy covers; a part that another side covers is added once."""
    perhaps_of: frozenset[str] = frozenset()
    """The parts that its energy may cover, too: a side of one of those cannot be measured beside it."""

    @property
    def restarts_workload(self) -> bool:
        """Whether its changes restart the workload; it is then a part of it and uses no energy."""
        return False

    def close(self) -> None:
        """Release its meter's resources."""
        if isinstance(self.meter, Closing):
            self.meter.close()


@dataclass(frozen=True, kw_only=True)
class Side(MeasuredSide):
    """One side of a target that can also be set: its knobs and its actuator.

    `settle_s` is the wait in s after `apply` before measuring. `unproven` gives the reason for each knob
    that is set without being read back from its user.

    The type of its actuator declares further abilities: `HoldGuard`, `Restartable`, `FollowsPlans`,
    `Closing`.
    """

    space: Space
    actuator: Actuator
    settle_s: float = 0.0
    unproven: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> MeasuredSide:
        """The side without its knobs and its actuator, which alone can change it."""
        return MeasuredSide(**{f.name: getattr(self, f.name) for f in fields(MeasuredSide)})

    @property
    def offered(self) -> Space:
        """The part of its space that is still worth trying."""
        return self.actuator.left()[0] if isinstance(self.actuator, Narrows) else self.space

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The knobs that are no longer offered, with the reasons."""
        return self.actuator.left()[1] if isinstance(self.actuator, Narrows) else {}

    @property
    def guard(self) -> HoldGuard | None:
        """The guard of the side; None without a guard."""
        return self.actuator if isinstance(self.actuator, HoldGuard) else None

    @property
    def restarts_workload(self) -> bool:
        """Whether its changes restart the workload; it is then a part of it and uses no energy."""
        return isinstance(self.actuator, RestartsWorkload)

    @property
    def capped(self) -> Capped | None:
        """The guard of its caps; None if it cannot be a member of a power budget."""
        actuator = self.actuator
        return actuator if isinstance(actuator, Capped) and actuator.caps.knobs else None

    def close(self) -> None:
        """Release the side's resources."""
        super().close()
        if isinstance(self.actuator, Closing):
            self.actuator.close()
