"""What metrics mean: unit, which way is better, how they combine, what they tell of the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from tuner.compat import StrEnum

__all__ = [
    "Better",
    "CAPACITY",
    "ENERGY",
    "IDLE",
    "IDLE_UNLOADED",
    "Kind",
    "OverDevices",
    "OverWindows",
    "POWER",
    "Quantities",
    "Quantity",
    "STANDARD",
    "UNDECLARED",
    "called",
    "quantity_of",
    "standard",
]


class Better(StrEnum):
    """Which way a quantity is better."""

    LESS = "less"
    MORE = "more"


class Kind(StrEnum):
    """What physical thing a quantity is, where physics knows of it."""

    TIME = "time"
    RATE = "rate"
    POWER = "power"
    ENERGY = "energy"
    OTHER = "other"


class OverDevices(StrEnum):
    """What several devices under one workload show together."""

    SUM = "sum"
    LEAST = "least"
    MOST = "most"


class OverWindows(StrEnum):
    """What several windows of one setting show together."""

    MEAN = "mean"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a metric means. `better` is None where neither way is: a load is neither good nor bad.

    `signed` is whether it may be below zero.
    """

    unit: str
    better: Better | None = None
    kind: Kind = Kind.OTHER
    over_devices: OverDevices = OverDevices.MOST
    over_windows: OverWindows = OverWindows.MEAN
    signed: bool = False

    @property
    def of_energy(self) -> bool:
        """Whether it is an energy or a power, which doing less work lowers, too."""
        return self.kind in (Kind.ENERGY, Kind.POWER)

    @property
    def tail(self) -> bool:
        """Whether it is a quantile, known by its bounds alone."""
        return self.over_windows is OverWindows.TAIL


Quantities = Mapping[str, Quantity]
"""What metrics mean, by name."""

UNDECLARED: Quantities = MappingProxyType({})
UNKNOWN = Quantity("", signed=True)
"""An undeclared quantity: nothing is assumed of it."""

ENERGY, POWER, CAPACITY = "energy_j", "power_w", "throughput_per_s"
"""The capacity is what a workload gets done: a saving is always shown beside it."""
IDLE, IDLE_UNLOADED = "idle_w", "idle_unloaded_w"
"""The power without requests: with the workload's model in memory, and without it."""

_LATENCY = Quantity("ms", Better.LESS, Kind.TIME)
STANDARD: Quantities = {
    ENERGY: Quantity("J", Better.LESS, Kind.ENERGY, OverDevices.SUM),
    POWER: Quantity("W", Better.LESS, Kind.POWER, OverDevices.SUM),
    IDLE: Quantity("W", None, Kind.POWER, OverDevices.SUM),
    IDLE_UNLOADED: Quantity("W", None, Kind.POWER, OverDevices.SUM),
    "cpu_time_ms": Quantity("ms", Better.LESS, Kind.TIME, OverDevices.SUM),
    "latency_ms": _LATENCY,
    "latency_mean_ms": _LATENCY,
    "inter_token_ms": _LATENCY,
    "time_to_first_token_ms": _LATENCY,
    CAPACITY: Quantity("1/s", Better.MORE, Kind.RATE, OverDevices.LEAST),
    "arrival_rate_per_s": Quantity("1/s", None, Kind.RATE, OverDevices.LEAST),
}
_QUANTILE = re.compile(r"_p\d{2,4}(?=_|$)")


@lru_cache(maxsize=1024)
def standard(metric: str) -> Quantity | None:
    """Return what a standard metric, or a quantile of one, means; None for any other name."""
    quantity = STANDARD.get(_QUANTILE.sub("", metric))
    if quantity is None or not _QUANTILE.search(metric):
        return quantity
    return replace(quantity, over_windows=OverWindows.TAIL)


def quantity_of(metric: str, declared: Quantities = UNDECLARED) -> Quantity:
    """Return what a metric was declared to mean, else what the standard one of that name means."""
    return declared.get(metric) or standard(metric) or UNKNOWN


def called(metric: str, declared: Quantities) -> str:
    """Return what the metric that means what a standard one means is called here.

    A quantile goes by its own name only: which one it is, its quantity does not tell.
    """
    if metric in declared or metric not in STANDARD:
        return metric
    return next((name for name, q in declared.items() if q == STANDARD[metric]), metric)


def known_metrics() -> str:
    """Return the metrics that have a better direction, in words."""
    return ", ".join(name for name, quantity in STANDARD.items() if quantity.better is not None)
