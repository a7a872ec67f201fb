"""The sides of a target as they are measured together; nothing here can be set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

from agents.target.side import LiveSignal, MeasuredSide, NamesItsSource
from tuner.core import (
    IDLE,
    IDLE_UNLOADED,
    POWER,
    Clock,
    ConfigError,
    Device,
    Metric,
    OverDevices,
    Quantities,
    Space,
    quantity_of,
    weakest,
)

WORKLOAD = "workload"
"""The key of the workload among a target's sides; a device's key is its kind, numbered if it repeats."""

S = TypeVar("S", bound=MeasuredSide, covariant=True)


@dataclass(frozen=True)
class MeasuredTarget(Generic[S]):
    """Devices, with or without a workload. It has no actuator, so nothing can be ordered to it.

    Raises:
        ConfigError: there is no side, sides run on different clocks, which prevents a common window, or
            it is unknown whether one's energy includes another's.
    """

    devices: tuple[S, ...]
    workload: S | None = None

    def __post_init__(self) -> None:
        if not self.sides:
            raise ConfigError("a target without any side cannot be measured", hint="name a device")
        first, *others = self.sides.values()
        for other in others:
            if other.clock is not first.clock:
                simulated, real = (first, other) if first.clock is not None else (other, first)
                raise ConfigError(
                    f"{simulated.name} uses simulated time, {real.name} does not",
                    hint="remove one of the two, or choose a real device",
                )
        for one, other in itertools.permutations(self.devices, 2):
            if one.perhaps_of & other.energy_of and one.metrics and other.metrics:
                why = f"the energy of {one.name} may include that of {other.name}"
                raise ConfigError(f"{why}: its driver does not show it", hint="measure one alone")

    @cached_property
    def sides(self) -> Mapping[str, S]:
        """The sides by key, the devices first."""
        sides: dict[str, S] = {}
        for side in self.devices:
            same = sum(key.split("~")[0] == side.kind for key in sides)
            sides[f"{side.kind}~{same + 1}" if same else side.kind] = side
        return sides if self.workload is None else {**sides, WORKLOAD: self.workload}

    @property
    def runs(self) -> S:
        """The workload, or the device that includes its own workload."""
        return self.workload or self.devices[0]

    @property
    def name(self) -> str:
        """The sides' names, the devices' first."""
        return " + ".join(side.name for side in self.sides.values())

    @property
    def driver(self) -> str:
        """The devices' versions: a change of one restarts a study's evidence."""
        return joined_text(side.version for side in self.devices)

    @property
    def clock(self) -> Clock | None:
        """The common clock, None for the host's."""
        return self.runs.clock

    @property
    def quantities(self) -> Quantities:
        """The quantities of the metrics, by name."""
        return {m.name: m.quantity for m in self.metrics}

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of all sides; if several list one, the workload's declaration counts.

        A metric of several devices claims no more than the weakest of their declarations.
        """
        metrics: dict[str, Metric] = {}
        for key, side in self.sides.items():
            for metric in side.metrics:
                previous = metrics.get(metric.name)
                if previous is not None and key != WORKLOAD:
                    origin = weakest((previous.origin, metric.origin))
                    metric = Metric(metric.name, origin, previous.scope, previous.quantity)
                metrics[metric.name] = metric
        if self._idles and (power := metrics.get(POWER)) is not None:
            metrics |= {n: Metric(n, power.origin, power.scope) for n in (IDLE, IDLE_UNLOADED)}
        return tuple(metrics.values())

    @property
    def _idles(self) -> bool:
        """Whether the workload's idle power can be measured."""
        return self.workload is not None and self.workload.idle is not None

    @property
    def cannot(self) -> Mapping[str, str]:
        """Knobs and metrics that no side can set or measure, with the reasons."""
        reasons = {k: v for side in self.sides.values() for k, v in side.cannot.items()}
        if self._idles:
            reasons[IDLE] = "no device has an energy meter"
        offered = {metric.name for metric in self.metrics}
        return {name: why for name, why in reasons.items() if name not in offered}

    @property
    def signals(self) -> Mapping[str, LiveSignal]:
        """The signals for plans, by name."""
        return {live.signal.name: live for side in self.sides.values() for live in side.signals}

    def source(self, metric: str) -> str:
        """Return as text the sides that list a metric, the workload first."""
        listed = [side for side in self.sides.values() if lists(side, metric)] or [self.runs]
        if self.workload in listed:
            return _source(self.runs, metric)
        if quantity_of(metric, self.quantities).over_devices is not OverDevices.SUM:
            return " + ".join(_source(side, metric) for side in listed)
        covered = [side for side in listed if self.covers(side)]
        source = " + ".join(_source(side, metric) for side in listed if side not in covered)
        blind = [d.name for d in self.devices if d not in listed and not d.restarts_workload]
        within = (
            f"; {', '.join(s.name for s in covered)} is part of it and not added" if covered else ""
        )
        return f"{source}{within}" + (f", without {', '.join(blind)}: no meter" if blind else "")

    def covers(self, side: MeasuredSide) -> bool:
        """Return whether another device's energy includes this one's, as a module's includes its CPU's."""
        others = [
            d.energy_of for d in self.devices if d is not side and d.energy_of > side.energy_of
        ]
        return bool(side.energy_of) and bool(others)

    @property
    def offered(self) -> Space:
        """The space without any knob: nothing can be set."""
        return Space(())

    def describe(self, id: str, agent: str, versions: Mapping[str, str], at: datetime) -> Device:
        """Return the target's description for the tuner."""
        devices = self.devices or (self.runs,)
        return Device(
            id=id,
            kind="+".join(side.kind for side in devices),
            board=joined_text(side.board for side in devices),
            driver=self.driver,
            agent=agent,
            workload=self.runs.name,
            workload_version=self.runs.version,
            space=self.offered,
            metrics=self.metrics,
            cannot=self.cannot,
            versions=versions,
            shared="; ".join(f"{s.name}: {s.shared}" for s in devices if s.shared),
            signals=tuple(live.signal for live in self.signals.values()),
            seen_at=at,
        )

    def close(self) -> None:
        """Release all sides, the workload first."""
        for side in reversed(list(self.sides.values())):
            side.close()


def lists(side: MeasuredSide, metric: str) -> bool:
    """Return whether a side lists a metric."""
    return any(m.name == metric for m in side.metrics)


def _source(side: MeasuredSide, metric: str) -> str:
    """Return the origin of a side's metric as text."""
    if metric == "cpu_time_ms":
        return f"the CPU accounting of {side.name}"
    now = side.meter.source if isinstance(side.meter, NamesItsSource) else side.source
    return now or f"the meter of {side.name}"


def joined_text(texts: Iterator[str] | Sequence[str]) -> str:
    """Join the texts that are not empty."""
    return " + ".join(text for text in texts if text)
