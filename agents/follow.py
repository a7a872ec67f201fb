"""A hold followed from second to second: the plan's row for the load, and a workload started again."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from agents.attached import Pulse, WorkloadChanged
from agents.demand import LoadEstimator, Rent
from agents.hold import Hold
from agents.holds import Holder
from agents.pair import Pair
from tuner.core import Clock, Context, Plan, SettingKey, TuningError, setting_key

log = logging.getLogger(__name__)

_Change = frozenset[SettingKey]
"""The settings that a change is between, either way: what one took is the best guess of the other."""

TICK_S = 1.0
CROWDED_TICK_S = 0.05
"""Between looks that themselves wait until the workload is crowded, for a second at most."""
ASKED_TICK_S = 0.2
"""Where a workload cannot wait for that: a look costs the agent a millisecond, and it half of one."""
SURGE = 6.0
"""So many times what the row in force is made for is no burst any more, but a queue that builds up."""
QUANTITY = "requests_in_system"
"""How many items are asked for at once: what a plan's rows may go by, told nowhere else."""


class Follower:
    """Looks at a workload's pulse while something is held, whatever the tuner does.

    A workload that was started again gets what is held anew. A plan by `requests_in_system` is followed:
    its row is changed once the time lost by staying is as long as the change takes (`Rent`), which is what
    it took the last time, and before that what the slowest of the knobs that differ says (`Cost.seconds`).
    Ours: down goes by the smoothed demand; up also by the queue of the moment, once it is a `SURGE`, and
    then each of the requests that wait loses time, so that the change comes the sooner the longer the
    queue is. A workload that can be asked to tells of the surge itself; the agent sleeps meanwhile.
    While a trial or a window has the workload nothing is followed: the load is then partly ours.
    """

    def __init__(self, device: str, pair: Pair, holder: Holder, clock: Clock) -> None:
        self._device = device
        self._pair = pair
        self._holder = holder
        self._clock = clock
        self._load = LoadEstimator()
        self._rent = Rent()
        self._took_s: dict[_Change, float] = {}
        self._trouble = ""

    @property
    def context(self) -> Context:
        """The situation as far as it is known here."""
        demand = self._load.demand
        return {} if demand is None else {QUANTITY: float(demand)}

    def run(self, stop: threading.Event) -> None:
        """Follow until stopped."""
        while not stop.wait(self.tick_s):
            self.tick()

    @property
    def tick_s(self) -> float:
        """How long to wait before the next look."""
        if self._surge() is None:
            return TICK_S
        return ASKED_TICK_S if self._pair.crowded is None else CROWDED_TICK_S

    def tick(self) -> None:
        """Take one look, and do what it asks for; what goes wrong is logged once and tried again."""
        if self._holder.current is None or self._pair.pulse is None:
            return
        if self._holder.is_lent:
            self._pause()
            return
        try:
            self._follow(self._look(self._pair.pulse))
            self._trouble = ""
        except TuningError as error:
            self._rent.settle()
            if isinstance(error, WorkloadChanged):
                self._holder.void(error.message)
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("event=not_followed device=%s why=%r", self._device, self._trouble)

    def _look(self, tell: Callable[[], Pulse]) -> Pulse:
        surge, crowded = self._surge(), self._pair.crowded
        return tell() if surge is None or crowded is None else crowded(surge, TICK_S)

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
        surge, present = self._surge(), self._load.present
        if surge is not None and present >= surge:
            row = plan.row({QUANTITY: present}, hold.row)
            weight = self._load.latest / plan.rows[hold.row].below
        else:
            surge, row, weight = None, plan.row(self.context, hold.row), 1.0
        if row == hold.row:
            self._rent.settle(now)
        elif self._rent.due(now, weight * _gain(plan, hold.row, row), self._cost_s(hold, row)):
            self._rent.settle()
            self._move(hold, row)
            if surge is not None:
                self._load.rise()

    def _surge(self) -> int | None:
        """Return how many requests are too many for the row in force; None where nobody cares."""
        hold = self._holder.current
        if hold is None or hold.order.plan.by != QUANTITY or self._holder.is_aside or self._trouble:
            return None
        below = hold.order.plan.rows[hold.row].below
        return None if math.isinf(below) else math.ceil(SURGE * below)

    def _move(self, hold: Hold, row: int) -> None:
        change, began = _change(hold, row), self._clock.monotonic()
        self._took_s.pop(change, None)
        if self._holder.follow(hold, row):
            self._took_s[change] = self._clock.monotonic() - began

    def _pause(self) -> None:
        self._load.pause()
        self._rent.settle()

    def _cost_s(self, hold: Hold, row: int) -> float:
        took_s = self._took_s.get(_change(hold, row))
        if took_s is not None:
            return took_s
        before, after = hold.setting, hold.order.plan.rows[row].setting
        knobs = self._pair.space.knobs
        changed = [k for k in knobs if before.get(k.name) != after.get(k.name)]
        return max((k.cost.seconds for k in changed), default=0.0)


def _change(hold: Hold, row: int) -> _Change:
    return frozenset({setting_key(hold.setting), setting_key(hold.order.plan.rows[row].setting)})


def _gain(plan: Plan, row: int, wanted: int) -> float:
    """Return the predicted gain of a change: the most of any row that is crossed, the wanted one too."""
    step = 1 if wanted > row else -1
    return max(plan.rows[k].gain for k in range(row + step, wanted + step, step))
