"""A hold as it is kept on the host's disk, and how long it stands."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from agents.host.host import Host
from tuner.core import Limit, Setting
from tuner.wire import HoldOrder, Message


class Hold(Message):
    """A hold in force, or one that has `ended` (why) and must not be resumed.

    `granted_at` is wall time, `granted_s` the boot clock of the boot that `boot` names. `row` is the
    row of the plan in force, `broken` how many of each row's windows in a row broke the SLO. `told`
    once the tuner's report of the end is on its way. `power_profiles` are those of its first window.
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
        """Return how many seconds the hold still stands without the tuner's word.

        Within the boot that it was granted in, by the boot clock. After a restart of the machine only
        wall time tells; where that has gone backwards nothing does, and the hold is over.
        """
        if host.boot and host.boot == self.boot:
            return self.order.valid_for_s - (monotonic - self.granted_s)
        passed = (now - self.granted_at).total_seconds()
        return self.order.valid_for_s - passed if passed >= 0.0 else 0.0

    def is_of(self, order: HoldOrder) -> bool:
        """Return whether an order asks for this very hold."""
        return (self.order.study, self.order.revision) == (order.study, order.revision)
