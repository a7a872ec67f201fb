"""The reading of a measuring window: its totals so far, and the metrics that its meter can finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.core.errors import MeasurementError
from tuner.core.facts import Fact
from tuner.core.measurements import ABSURD, Estimate
from tuner.core.samples import Latencies

__all__ = ["FAILURES", "FOREIGN_LOAD", "POWER_PROFILES", "Reading"]

FAILURES = "failures"
"""The subject of a note: the failed requests of our load, by reason."""
FOREIGN_LOAD = "foreign_load"
"""The subject of a note: why the share of other processes on a device is unknown."""
POWER_PROFILES = "power_profiles"
"""The subject of a note: the vendor's power profiles in force. A hold ends when they change."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of a window so far, by name; a value that is not available yet is absent.

    `totals` are sums since the window was opened: `energy_j`, `items`, `failed`, `cpu_s` (of the workload's
    processes), `busy_s` (CPU seconds of the whole host), `foreign_s` (while other processes computed on the
    device), `throttled_<reason>_s`. `estimates` are finished metrics, with an uncertainty that only the
    meter can give. `notes` qualify the values in words, by subject (`foreign_load`). `facts` are second
    witnesses, which the rules of `tuner.core.witnesses` compare with the figures. `latencies` are those
    behind the quantiles in `estimates`, if the meter has them.

    Raises:
        MeasurementError: a total is negative, not a number or absurdly large.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    latencies: Latencies | None = None

    def __post_init__(self) -> None:
        for name, total in self.totals.items():
            if not 0.0 <= total < ABSURD:
                raise MeasurementError(f"the total {name} cannot be {total}")
