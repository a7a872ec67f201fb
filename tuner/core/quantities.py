"""What the standard metrics mean: their unit, and which way is better."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """Which way a quantity is better."""

    LESS = "less"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a metric means. `better` is None where neither way is: a load is nobody's merit."""

    unit: str
    better: Better | None


CAPACITY = "throughput_per_s"
"""What a workload gets done: a saving is always shown beside it."""

STANDARD: Mapping[str, Quantity] = {
    "energy_j": Quantity("J", Better.LESS),
    "power_w": Quantity("W", Better.LESS),
    "cpu_time_ms": Quantity("ms", Better.LESS),
    "latency_ms": Quantity("ms", Better.LESS),
    "latency_mean_ms": Quantity("ms", Better.LESS),
    CAPACITY: Quantity("1/s", Better.MORE),
    "arrival_rate_per_s": Quantity("1/s", None),
}
_ENERGIES = ("J", "W")


def quantity_of(metric: str) -> Quantity | None:
    """Return what a standard metric, or a quantile of one, means; None for any other name."""
    return STANDARD.get(re.sub(r"_p\d{2,4}(?=_|$)", "", metric))


def known_metrics() -> str:
    """Return the metrics of which it is known which way is better, in words."""
    return ", ".join(name for name, known in STANDARD.items() if known.better is not None)


def is_energy(metric: str) -> bool:
    """Return whether a metric is an energy or a power, which doing less work lowers, too."""
    found = quantity_of(metric)
    return found is not None and found.unit in _ENERGIES
