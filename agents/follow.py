"""A hold followed from second to second: the plan's row for the load, and a workload started again."""

from __future__ import annotations

import logging
import threading

from agents.attached import Pulse, WorkloadChanged
from agents.demand import LoadEstimator, Rent
from agents.holds import Holder
from agents.pair import Pair
from tuner.core import Clock, Context, Plan, Setting, TuningError

log = logging.getLogger(__name__)

TICK_S = 1.0
QUANTITY = "batch_demand"
"""How many items are asked for at once: what a plan's rows may go by, told nowhere else."""


class Follower:
    """Looks at a workload's pulse every second while something is held, whatever the tuner does.

    A workload that was started again gets what is held anew. A plan by `batch_demand` is followed: its
    row is changed once the time lost by staying is as long as the change takes (`Rent`); the change
    takes what the slowest of the knobs that differ says (`Cost.seconds`). While a trial or a window has
    the workload nothing is followed: the load is then partly ours.
    """

    def __init__(self, device: str, pair: Pair, holder: Holder, clock: Clock) -> None:
        self._device = device
        self._pair = pair
        self._holder = holder
        self._clock = clock
        self._load = LoadEstimator()
        self._rent = Rent()
        self._trouble = ""

    @property
    def context(self) -> Context:
        """The situation as far as it is known here."""
        demand = self._load.demand
        return {} if demand is None else {QUANTITY: float(demand)}

    def run(self, stop: threading.Event) -> None:
        """Follow until stopped."""
        while not stop.wait(TICK_S):
            self.tick()

    def tick(self) -> None:
        """Take one look, and do what it asks for; what goes wrong is logged once and tried again."""
        tell = self._pair.pulse
        if self._holder.current is None or tell is None:
            return
        if self._holder.is_lent:
            self._pause()
            return
        try:
            self._follow(tell())
            self._trouble = ""
        except TuningError as error:
            self._rent.settle()
            if isinstance(error, WorkloadChanged):
                self._holder.void(error.message)
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("event=not_followed device=%s why=%r", self._device, self._trouble)

    def _follow(self, pulse: Pulse) -> None:
        now = self._clock.monotonic()
        if self._holder.take_up(pulse.incarnation):
            log.warning("event=workload_restarted device=%s", self._device)
        if self._holder.is_aside:
            self._pause()
            return
        self._load.see(now, pulse)
        hold = self._holder.current
        if hold is None or hold.order.plan.by not in self.context:
            return
        plan = hold.order.plan
        row = plan.row(self.context, hold.row)
        if row == hold.row:
            self._rent.settle()
        elif self._rent.due(now, _gain(plan, hold.row, row), self._cost_s(plan, hold.row, row)):
            self._rent.settle()
            self._holder.follow(hold, row)

    def _pause(self) -> None:
        self._load.pause()
        self._rent.settle()

    def _cost_s(self, plan: Plan, row: int, wanted: int) -> float:
        before: Setting = plan.rows[row].setting
        after = plan.rows[wanted].setting
        knobs = self._pair.space.knobs
        changed = [k for k in knobs if before.get(k.name) != after.get(k.name)]
        return max((k.cost.seconds for k in changed), default=0.0)


def _gain(plan: Plan, row: int, wanted: int) -> float:
    """Return the predicted gain of a change: the most of any row that is crossed, the wanted one too."""
    step = 1 if wanted > row else -1
    return max(plan.rows[k].gain for k in range(row + step, wanted + step, step))
