"""Quantities of metrics: unit, better direction, kind, and how values of devices and windows combine.

Numbers that are sent between machines have types, each with a finite range. A range applies to messages
and files: a number outside its range is refused (`tuner.bounds.tightened`). Values made by this program,
or read from the database, have no range. A text is nowhere a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any

from tuner.compat import StrEnum


class Better(StrEnum):
    """The direction in which a quantity improves."""

    LESS = "less"
    MORE = "more"


class Kind(StrEnum):
    """The physical kind of a quantity; `OTHER` if it is not one of these."""

    TIME = "time"
    RATE = "rate"
    POWER = "power"
    ENERGY = "energy"
    OTHER = "other"


class OverDevices(StrEnum):
    """The way to combine the values of several devices under one workload."""

    SUM = "sum"
    LEAST = "least"
    MOST = "most"


class OverWindows(StrEnum):
    """The way to combine the values of several windows of one setting."""

    MEAN = "mean"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Quantity:
    """The meaning of a metric. `better` is None if neither direction is: a load is neither good nor bad.

    `signed` is whether a value may be below zero.
    """

    unit: str
    better: Better | None = None
    kind: Kind = Kind.OTHER
    over_devices: OverDevices = OverDevices.MOST
    over_windows: OverWindows = OverWindows.MEAN
    signed: bool = False

    @property
    def of_energy(self) -> bool:
        """Whether it is an energy or a power, which also falls if less work is done."""
        return self.kind in (Kind.ENERGY, Kind.POWER)

    @property
    def tail(self) -> bool:
        """Whether it is a quantile, whose windows are combined by their bounds."""
        return self.over_windows is OverWindows.TAIL


Quantities = Mapping[str, Quantity]
"""The quantity of each metric, by its name."""
UNDECLARED: Quantities = MappingProxyType({})
_UNKNOWN = Quantity("", signed=True)
"""The quantity of a metric that nobody declared: nothing is assumed about it."""
ENERGY, POWER, CAPACITY = "energy_j", "power_w", "throughput_per_s"
"""The capacity is the rate at which a workload completes items; each saving is shown beside it."""
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
    """Return the quantity of a standard metric, or of a quantile of one; None for any other name."""
    quantity = STANDARD.get(_QUANTILE.sub("", metric))
    if quantity is None or not _QUANTILE.search(metric):
        return quantity
    return replace(quantity, over_windows=OverWindows.TAIL)


def quantity_of(metric: str, declared: Quantities = UNDECLARED) -> Quantity:
    """Return the declared quantity of a metric, else the standard one of that name, else one of no unit."""
    return declared.get(metric) or standard(metric) or _UNKNOWN


def called(metric: str, declared: Quantities) -> str:
    """Return the name under which a standard metric is declared: the first with the same quantity.

    A metric that is declared itself keeps its name. So does a quantile, since the quantity of a quantile
    does not include which one it is.
    """
    if metric in declared or metric not in STANDARD:
        return metric
    return next((name for name, q in declared.items() if q == STANDARD[metric]), metric)


def known_metrics() -> str:
    """Return the names of the standard metrics that have a better direction, as text."""
    return ", ".join(name for name, quantity in STANDARD.items() if quantity.better is not None)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`; `above` excludes `low`, `open_ended` includes both infinities."""

    low: float
    high: float
    above: bool = False
    open_ended: bool = False

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a number, marked with this range. It refuses `true` and "1e9"."""
        strict = {} if self.open_ended else {"strict": True}  # JSON has an infinity as a text
        return _marked({**handler(source), **strict}, {"range": self})


class _Repeated:
    """The mark of a list in which a text may appear twice, as the lines of a file may."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of a list with this mark."""
        return _marked(handler(source), {"repeated": True})


def _marked(schema: dict[str, Any], mark: dict[str, object]) -> dict[str, Any]:
    """Return a schema with a mark in its metadata, where `tuner.bounds.tightened` reads it."""
    return {**schema, "metadata": {**schema.get("metadata", {}), **mark}}


REPEATED = _Repeated()
LONGEST_S = 10 * 366 * 86_400.0
"""Ten years: the longest time that a message or a file can give for a hold, a lease or a window."""
LARGEST = 1e18
Finite = Annotated[float, Range(-LARGEST, LARGEST)]
"""A figure of any unit; the sum of a thousand of their squares is finite, too."""
Boundary = Annotated[float, Range(-1e19, 1e19, open_ended=True)]
"""The end of an interval, which may be infinite. In JSON, which has no infinity, it is a text then."""
Watts = Annotated[float, Range(0.0, 1e9)]
"""A power: 1 GW is more than a data centre draws."""
Joules = Annotated[float, Range(-1e18, 1e18)]
"""An energy, or the difference of two: 1 GW over 30 years."""
Seconds = Annotated[float, Range(0.0, LONGEST_S, above=True)]
"""A length of time that a device has to keep. NaN is refused: a wait for it would never end."""
Span = Annotated[float, Range(0.0, LONGEST_S)]
"""A length of time that may be 0."""
Share = Annotated[float, Range(0.0, 1.0)]
Count = Annotated[int, Range(0, 2**53)]
Ordinal = Annotated[int, Range(0, 2**63 - 1)]
"""A revision, an attempt or a fencing token: a number that only grows, and fits a database column."""
Priority = Annotated[int, Range(-1_000_000, 1_000_000)]
