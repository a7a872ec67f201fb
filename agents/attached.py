"""What an agent has opened on its host: one device or one workload, ready to be set and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.core import Actuator, Clock, Meter, Metric, Space


def nothing_to_close() -> None:
    """Do nothing: for what holds no resources."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """One side of what is tuned: what it is, what can be set, and how it is set and measured.

    `version` is the driver's or the workload's: a change of it starts a study's evidence afresh.
    `clock` is the side's own time where it has one (simulated and replayed devices), else None.
    `settle_s` is how long to wait after `apply` before measuring. `cannot` says in words what cannot
    be set or measured here and why. `source` says in words where its numbers come from (`our load
    generator, closed loop of 4`); empty: the side's own meter.

    A meter's window gives finished metrics (`latency_p99_ms`, `throughput_per_s`,
    `arrival_rate_per_s`) and running totals since it was opened, whose names begin with `window_`:
    `window_energy_j`, `window_items`, `window_failed`, `window_cpu_s` (of the workload's processes),
    `window_busy_s` (CPU seconds of the whole host), `window_throttled_<reason>_s`. What is per item
    the agent derives from the totals of both sides, for the metrics that a side lists (`energy_j`,
    `power_w`, `cpu_time_ms`, `throughput_per_s`). A side lists `arrival_rate_per_s` only where load
    arrives at a rate of its own, whatever the setting (open loop, production): such rates are compared.
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
    close: Callable[[], None] = nothing_to_close
