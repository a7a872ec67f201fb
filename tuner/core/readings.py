"""What a measuring window shows: what it added up, and the metrics that its meter can finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.core.errors import MeasurementError
from tuner.core.facts import Fact
from tuner.core.measurements import ABSURD, Estimate

__all__ = ["FOREIGN_LOAD", "POWER_PROFILES", "Reading"]

FOREIGN_LOAD = "foreign_load"
"""The note that others' share of a device is unknown, and why."""
POWER_PROFILES = "power_profiles"
"""The note of what a vendor's power profiles are in force: a hold ends when they change."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a window shows, by name; what shows nothing yet is absent.

    `totals` are what it has added up since it was opened: `energy_j`, `items`, `failed`, `cpu_s` (of
    the workload's processes), `busy_s` (CPU seconds of the whole host), `foreign_s` (while others
    computed on the device), `throttled_<reason>_s`. `estimates` are finished metrics, with the doubt
    that only the meter knows. `notes` say in words what qualifies it, by subject (`foreign_load`). `facts`
    are what the rules of `tuner.core.witnesses` compare with the figures.

    Raises:
        MeasurementError: a total that is negative, or no number.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()

    def __post_init__(self) -> None:
        for name, total in self.totals.items():
            if not 0.0 <= total < ABSURD:
                raise MeasurementError(f"the total {name} cannot be {total}")
