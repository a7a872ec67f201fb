"""A hold as stored on the host's disk, and its remaining time."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from agents.host.machine import Host
from tuner.core import Limit, Setting
from tuner.wire import HoldOrder, Message


class Hold(Message):
    """A hold in force, or one that has `ended` (the reason) and must not be resumed.

    `granted_at` is wall time; `granted_s` is the boot clock in s of the boot that `boot`
    identifies. `row` is the index of the plan's row in force; `broken` counts each row's latest
    consecutive windows that broke the SLO. `told` is set once the report of the end is on its way
    to the tuner. `power_profiles` are those of the first window. `accepted` is the acceptance of each
    draft length when the hold began: tokens and steps.
    """

    order: HoldOrder
    granted_at: datetime
    granted_s: float
    boot: str
    driver: str
    workload_version: str
    row: int
    broken: dict[int, int] = Field(default_factory=dict)
    power_profiles: str = ""
    accepted: dict[int, tuple[float, float]] = Field(default_factory=dict)
    ended: str = ""
    told: bool = False

    @property
    def setting(self) -> Setting:
        """The held setting."""
        return self.order.plan.rows[self.row].setting

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of the row in force."""
        return self.order.limits[self.row]

    def left_s(self, host: Host, now: datetime, monotonic: float) -> float:
        """Return the seconds for which the hold remains valid without contact to the tuner.

        Within the boot that it was granted in, the boot clock counts. After a restart of the
        machine only wall time is available; if that has gone backwards, the hold is over.
        """
        if host.boot and host.boot == self.boot:
            return self.order.valid_for_s - (monotonic - self.granted_s)
        passed = (now - self.granted_at).total_seconds()
        return self.order.valid_for_s - passed if passed >= 0.0 else 0.0

    def is_of(self, order: HoldOrder) -> bool:
        """Return whether an order is for this hold."""
        return (self.order.study, self.order.revision) == (order.study, order.revision)
