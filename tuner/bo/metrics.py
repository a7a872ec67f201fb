"""What a metric tells, as far as its name tells."""

from __future__ import annotations

from enum import StrEnum


class Quantity(StrEnum):
    """What a metric tells, as far as its name tells."""

    TIME = "time"
    RATE = "rate"
    POWER = "power"
    ENERGY = "energy"
    NONE = "unknown"


SUFFIXES = (
    (Quantity.NONE, ("_per_j", "_per_w")),
    (Quantity.RATE, ("_per_s",)),
    (Quantity.ENERGY, ("_j",)),
    (Quantity.POWER, ("_w",)),
    (Quantity.TIME, ("_s", "_ms")),
)


def quantity(metric: str) -> Quantity:
    """Return what a metric of that name tells; NONE where nothing tells."""
    return next((q for q, suffixes in SUFFIXES if metric.endswith(suffixes)), Quantity.NONE)
