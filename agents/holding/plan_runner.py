"""Follows a hold at least every second: selects the plan's row, and re-applies it after restarts."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from agents.holding.backlog import Backlog
from agents.holding.hold import Hold
from agents.holding.holder import Holder
from agents.holding.parking import LOOK_S, Parking
from agents.holding.signal_level import SignalLevel, SwitchingCost
from agents.target.escape import INSIDE, WAITING, WaitingQueue
from agents.target.side import LiveSignal, WaitingSignal, WorkloadChanged
from agents.target.target import Target
from tuner.core import (
    ActuationError,
    Clock,
    Context,
    Plan,
    SettingKey,
    TuningError,
    setting_key,
)

log = logging.getLogger(__name__)

_Change = frozenset[SettingKey]
"""The two settings of a change, in either direction: the duration of one predicts the other."""

TICK_S = 1.0
AWAITED_TICK_S = 0.05
"""Seconds between looks, if a look itself waits for a rise of the signal, for at most 1 s."""
POLLED_TICK_S = 0.2
"""Seconds between looks at other signals: a look costs the agent 1 ms, and a workload half of that."""
LOADS_S = 0.5
"""Seconds between readings of the signals that no plan uses."""
PER_SECOND = "1/s"
NOTHING_HELD = Plan.single({})
"""The plan for a signal that is only measured."""
QUEUE_FACTOR = 6.0
"""A load above this multiple of the row's is a growing queue rather than a burst."""


@dataclass(eq=False)
class PlanRunner:
    """Follow the plan of a hold by its signal, independently of the tuner.

    A row is changed once the time lost by staying equals the duration of the change
    (`SwitchingCost`). That duration is the last measured one, or before that the slowest
    `Cost.seconds` of the knobs that differ. Our choice: a change to a lower row uses the smoothed level;
    a change to a higher one also uses the current value, once it is `QUEUE_FACTOR` times the row's upper
    bound. Then each waiting request loses time, so a longer queue brings the change earlier. A
    `WaitingSignal` reports such a value itself; the agent sleeps meanwhile. While a trial or a window
    uses the workload, the plan is not followed, because a part of the load is then our own.

    An eager plan changes to a higher row immediately, at any cost, and to a lower one once the queue of
    a rise is served (`Backlog`). While unusually many requests wait (`WaitingQueue`), its highest row is
    held.

    The other signals are read too, also without a hold, so that the tuner knows the load.

    A workload that follows the plan itself is only asked for its setting. A restarted workload gets
    the held setting again. A plan by a quantity that no signal reports is followed by windows.
    """

    device: str
    target: Target
    holder: Holder
    clock: Clock
    queue: WaitingQueue = field(default_factory=WaitingQueue)
    parking: Parking | None = None

    def __post_init__(self) -> None:
        self._level: SignalLevel | None = None
        self._loads: dict[str, SignalLevel] = {}
        self._unread: dict[str, str] = {}
        self._loads_at = -math.inf
        self._cost = SwitchingCost()
        self._backlog = Backlog()
        self._escaped = False
        self._took_s: dict[_Change, float] = {}
        self._trouble = self._unparked = ""

    @property
    def context(self) -> Context:
        """The current load, as far as it is measured here: the levels of the signals."""
        own = {} if self._level is None else {self._level.plan.by: self._level}
        reported = {name: level.reported for name, level in {**self._loads, **own}.items()}
        return {name: value for name, value in reported.items() if value is not None}

    def run(self, stop: threading.Event) -> None:
        """Follow until stopped."""
        while not stop.wait(self.tick_s):
            self._pass_time()
            self.tick()
        with suppress(TuningError):  # its guard ends it, or the next start
            self.holder.unpark()

    def _pass_time(self) -> None:
        """Advance the clock of a simulated target under load, which otherwise only windows advance."""
        own = self.target.clock
        if own is not None and self.target.signals and not self.holder.is_aside:
            own.sleep(self.tick_s)

    @property
    def tick_s(self) -> float:
        """Seconds until the next look."""
        if self.holder.parked:
            return LOOK_S
        if self._too_many() is None:
            hold = self.holder.current
            queued = hold is not None and hold.order.plan.eager and WAITING in self._loads
            return LOADS_S if queued else TICK_S
        return AWAITED_TICK_S if isinstance(self._signal(), WaitingSignal) else POLLED_TICK_S

    def tick(self) -> None:
        """Take one look and act on it; log an error once and retry.

        On any exception the hold is kept with its row.
        """
        hold = self.holder.current
        self._look_at_idle(hold)
        self._look_at_loads("" if hold is None else hold.order.plan.by)
        self._look_at_queue(hold)
        if hold is None:
            return
        if self.holder.is_lent:
            self._pause()
            return
        try:
            self._look(hold)
            self._trouble = ""
        except TuningError as error:
            if isinstance(error, WorkloadChanged):
                self.holder.void(error.message)
            self._not_followed(str(error))
        except Exception as error:  # noqa: BLE001  A signal may be a plug-in.
            self._not_followed(f"{type(error).__name__}: {error}", unforeseen=True)

    def _look_at_loads(self, followed: str) -> None:
        """Read all signals but the followed one; skip a load that a trial requested."""
        now = self.clock.monotonic()
        due = now - self._loads_at >= LOADS_S
        self._loads_at = now if due else self._loads_at
        for name, live in self.target.signals.items():
            if name == followed:
                self._loads.pop(name, None)
                continue
            fresh = SignalLevel(NOTHING_HELD, rate=live.signal.unit == PER_SECOND)
            level = self._loads.setdefault(name, fresh)
            if live.signal.askable and self.holder.is_aside:
                level.pause()
                continue
            if not due:
                continue
            try:
                level.see(self.clock.monotonic(), live.read())
                self._unread.pop(name, None)
            except Exception as error:  # noqa: BLE001  A signal may be a plug-in.
                self._loads.pop(name)
                if self._unread.get(name) != str(error):
                    self._unread[name] = str(error)
                    log.error("event=signal_not_read signal=%s why=%r", name, str(error))

    def _look_at_queue(self, hold: Hold | None) -> None:
        """Update the waiting queue, unless a trial uses the workload."""
        waiting, inside = self._loads.get(WAITING), self._inside(present=True)
        if waiting is None or waiting.smoothed is None or self.holder.is_aside:
            return
        rests = hold is None or setting_key(hold.setting) == setting_key(hold.order.baseline)
        at = self.clock.monotonic()
        self.queue.see(at, waiting.present, inside or waiting.present, baseline=rests)

    def _look_at_idle(self, hold: Hold | None) -> None:
        """Park the device after some time without requests; end that at the first one."""
        parking, now = self.parking, self.clock.monotonic()
        if parking is None:
            return
        if hold is None or self.holder.is_aside:
            parking.reset()
            return
        try:
            if not parking.is_idle(now):
                if self.holder.unpark():
                    added_s = parking.woken(self.clock.monotonic())
                    log.info("event=unparked device=%s added_s=%.3f", self.device, added_s)
            elif parking.due(now, parked=self.holder.parked) and (
                lowest := parking.settings(self.target.caps.clipped(hold.setting))
            ):
                self.holder.park(lowest)
                log.info("event=parked device=%s", self.device)
                parking.parked(now, self.clock.monotonic())
                self._unparked = ""
            if parking.exceeded and parking.exceeded != self._unparked:
                raise ActuationError(parking.exceeded)
        except Exception as error:  # noqa: BLE001  A signal may be a plug-in.
            parking.reset()
            if str(error) != self._unparked:
                self._unparked = str(error)
                log.error("event=not_parked device=%s why=%r", self.device, str(error))
            with suppress(TuningError):  # the next look retries
                self.holder.unpark()

    def _not_followed(self, why: str, *, unforeseen: bool = False) -> None:
        self._cost.settle()
        if why != self._trouble:
            self._trouble = why
            log.error("event=not_followed device=%s why=%r", self.device, why, exc_info=unforeseen)

    def observed(self, context: Context) -> None:
        """Follow a plan by a quantity that windows measure, not by a live signal.

        Raises:
            ActuationError: the row could not be put in force; the previous one stays held.
        """
        hold = self.holder.current
        if hold is None:
            return
        plan = hold.order.plan
        if plan.by in self.target.signals:
            return
        row = hold.order.plan.row(context, hold.row)
        if row != hold.row:
            self.holder.follow(hold, row)

    def _look(self, hold: Hold) -> None:
        """Read the plan's signal once, and follow it."""
        live, restartable = self._signal(), self.target.restartable
        if live is None or self.holder.handed:
            if restartable is not None:
                self._take_up(restartable.incarnation())
            if self.holder.handed and not self.holder.is_aside:
                self.holder.check_handed()
            return
        too_many = self._too_many()
        sample = (
            live.wait_above(too_many, TICK_S)
            if too_many is not None and isinstance(live, WaitingSignal)
            else live.read()
        )
        now, rate = self.clock.monotonic(), live.signal.unit == PER_SECOND
        if restartable is not None:
            self._take_up(sample.incarnation or restartable.incarnation())
        if self.holder.is_aside:
            self._pause()
            return
        if self._level is None or self._level.plan != hold.order.plan:
            self._level = SignalLevel(hold.order.plan, rate=rate)
            self._backlog = Backlog()
        self._level.see(now, sample)
        if rate:
            self._backlog.see(now, self._level.latest, self._inside())
        self._follow(now, self._level)

    def _take_up(self, incarnation: str) -> None:
        if self.holder.take_up(incarnation):
            log.warning("event=workload_restarted device=%s", self.device)

    def _follow(self, now: float, level: SignalLevel) -> None:
        """Change to the row that the level selects, if the change pays."""
        hold = self.holder.current
        if hold is None or hold.order.plan != level.plan:
            return
        if level.row is None:
            return
        plan, too_many = level.plan, self._too_many()
        if plan.eager and self._escape(hold, level.row):
            return
        if too_many is not None and level.present >= too_many:
            row = plan.row({plan.by: level.present}, hold.row)
            weight = level.latest / plan.rows[hold.row].below
        else:
            too_many, row, weight = None, level.row, 1.0
        risen = row > hold.row
        if row == hold.row or (plan.eager and not risen and not self._backlog.served(now)):
            self._cost.settle(now)
        elif plan.eager and risen:
            self._cost.settle()
            self._backlog.rise(now)
            self._move(hold, row)
        elif self._cost.due(now, weight * _gain(plan, hold.row, row), self._cost_s(hold, row)):
            self._cost.settle()
            self._move(hold, row)
            if too_many is not None:
                level.rise()

    def _escape(self, hold: Hold, row: int) -> bool:
        """Hold the highest row while a queue is long, then `row`; return whether this decided the row."""
        if self.queue.long:
            row = len(hold.order.plan.rows) - 1
        elif not self._escaped:
            return False
        self._escaped = self.queue.long
        self._cost.settle()
        if row != hold.row:
            self._move(hold, row)
        return True

    def _inside(self, *, present: bool = False) -> float | None:
        """Return the number of requests in the service; None if no signal reports it."""
        levels = {
            name: level.present if present and level.smoothed is not None else level.smoothed
            for name, level in self._loads.items()
        }
        for names in INSIDE:
            values = [v for name in names if (v := levels.get(name)) is not None]
            if len(values) == len(names):
                return sum(values)
        return None

    def _signal(self) -> LiveSignal | None:
        """Return the live signal of the hold's plan; None if no signal here reports it."""
        hold = self.holder.current
        return None if hold is None else self.target.signals.get(hold.order.plan.by)

    def _too_many(self) -> int | None:
        """Return the signal value that is too high for the row in force; None if it does not matter."""
        hold, live = self.holder.current, self._signal()
        if hold is None or live is None or self.holder.handed:
            return None
        if self.holder.is_aside or self._trouble:
            return None
        if live.signal.unit == PER_SECOND and hold.order.plan.eager:
            return None  # A rate is no queue: two requests within a tick are not one.
        below = hold.order.plan.rows[hold.row].below
        # A signal at or below zero (a price, a temperature) has no queue.
        return math.ceil(QUEUE_FACTOR * below) if 0.0 < below < math.inf else None

    def _move(self, hold: Hold, row: int) -> None:
        """Apply a row of the plan, and store the seconds that it took."""
        change, began = _change(hold, row), self.clock.monotonic()
        self._took_s.pop(change, None)
        if self.holder.follow(hold, row):
            self._took_s[change] = self.clock.monotonic() - began

    def _pause(self) -> None:
        """Forget the averages of the signal, because the time until the next sample is unknown."""
        if self._level is not None:
            self._level.pause()
        self._backlog, self._escaped = Backlog(), False
        self._cost.settle()

    def _cost_s(self, hold: Hold, row: int) -> float:
        took_s = self._took_s.get(_change(hold, row))
        if took_s is not None:
            return took_s
        before, after = hold.setting, hold.order.plan.rows[row].setting
        knobs = self.target.space.knobs
        changed = [k for k in knobs if before.get(k.name) != after.get(k.name)]
        return max((k.cost.seconds for k in changed), default=0.0)


def _change(hold: Hold, row: int) -> _Change:
    """Return the key of a change from the held setting to a row's, in either direction."""
    return frozenset({setting_key(hold.setting), setting_key(hold.order.plan.rows[row].setting)})


def _gain(plan: Plan, row: int, target: int) -> float:
    """Return a change's predicted gain: the largest of the rows crossed, including the wanted one."""
    step = 1 if target > row else -1
    return max(plan.rows[k].gain for k in range(row + step, target + step, step))
