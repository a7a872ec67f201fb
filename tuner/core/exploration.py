"""Limits on a study's exploring: maintenance windows, freezes and budgets. Holding is never limited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from tuner.core.described import Described
from tuner.core.units import Share
from tuner.errors import InvalidInput

__all__ = ["Exploration", "MaintenanceWindow"]

LONGEST_WINDOW_H = 7 * 24.0


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time in which trials may run: it opens by `cron`, five fields, and lasts `hours`.

    Raises:
        InvalidInput: the length is not above 0 h and at most a week.
    """

    cron: str
    hours: float

    def __post_init__(self) -> None:
        if not 0.0 < self.hours <= LONGEST_WINDOW_H:
            raise InvalidInput(
                f"hours cannot be {self.hours:g}",
                hint=f"give more than 0, and at most {LONGEST_WINDOW_H:g} (a week)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """The limits on a study's exploring; by default it is not limited.

    Trials run only in `windows` (empty: at any time), whose cron is in `time_zone`. `frozen` is the reason
    of a freeze, during which a hold continues but no trial begins; empty: not frozen. Tuning trials use at
    most `max_time_share` of the time since the study was created, and at most `max_energy_share` of the
    energy that the baseline would have used in that time. A plan whose confirmed gain is below
    `min_saving`, a share of the baseline's objective, is not held.

    Raises:
        InvalidInput: a share is not above 0 and at most 1, or `min_saving` is not from 0 to below 1.
    """

    windows: tuple[MaintenanceWindow, ...] = ()
    time_zone: str = "UTC"
    frozen: str = ""
    max_time_share: Annotated[Share, Described("Most of the time for trials.", "SHARE")] = 1.0
    max_energy_share: Annotated[
        Share, Described("Most energy of trials, of the baseline's.", "SHARE")
    ] = 1.0
    min_saving: Annotated[Share, Described("Least saving of a held plan.", "SHARE")] = 0.0

    def __post_init__(self) -> None:
        for name in ("max_time_share", "max_energy_share"):
            share = getattr(self, name)
            if not 0.0 < share <= 1.0:  # refuses NaN, too
                raise InvalidInput(
                    f"{name} cannot be {share:g}", hint="give more than 0, and at most 1 (no limit)"
                )
        if not (math.isfinite(self.min_saving) and 0.0 <= self.min_saving < 1.0):
            raise InvalidInput(
                f"min_saving cannot be {self.min_saving:g}",
                hint="give a share from 0 (any gain) to below 1; 0.02 is 2 %",
            )
