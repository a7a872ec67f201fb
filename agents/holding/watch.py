"""Watches a hold: measures windows by the host's clock, judges them, and reports to the tuner."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from agents.holding.hold import Hold
from agents.holding.holder import Holder, context_of
from agents.target.measure import Measurer
from agents.target.observe import Ask, Check, MeasuredWindow
from agents.tuner_link.client import TunerClient
from tuner.core import ActuationError, Clock, Conflict, Context, SettingContested, TuningError
from tuner.wire import HoldReport

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watch:
    """Watch one device's hold.

    Windows are due by the host's clock, also if the device has its own clock, on which a window
    takes no host time. `check` raises Conflict once the agent must stop. `context` is the load of
    the last window; `follow` receives it, and changes the plan's row if the plan uses it.
    """

    device: str
    bench: Measurer
    holder: Holder
    link: TunerClient
    clock: Clock
    check: Check
    rng: random.Random
    follow: Callable[[Context], None]
    context: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reported_at = -math.inf
        self._reported_until = datetime.min.replace(tzinfo=timezone.utc)
        self.start_now()

    def due_in_s(self) -> float:
        """Seconds until something is due; infinite without a hold.

        Also infinite if a window is a complete run of a program: further windows are not needed.
        """
        if self.holder.current is None or self.bench.runs is not None:
            return math.inf
        return max(0.0, self._due_at - self.clock.monotonic())

    def start_now(self) -> None:
        """Make the next window due immediately: the hold is new."""
        self._due_at, self._left_out_s = self.clock.monotonic(), 0.0
        self.speak_from_now()

    def speak_from_now(self) -> None:
        """Let the next window speak for no time before now: the hold was not in force."""
        self._since = self.clock.monotonic()

    def mind(self) -> None:
        """End a hold whose time is over, and measure a window if one is due."""
        hold = self.holder.current
        if hold is None:
            return
        why = self.holder.lapsed()
        if why:
            self.end(why)
        elif self.due_in_s() <= 0.0:
            # It speaks for the wait before it, not for a delay: a job or an error may have caused that.
            self._since = max(self._since, self.clock.monotonic() - hold.order.observe_s)
            # Left out while parked, not put off: a window that begins at a request has too high a rate.
            if self.holder.parked:
                self._due_at = self.clock.monotonic() + hold.order.observe_s
                return
            try:
                # Our own load must not count as demand, and no row may change within a window.
                with self.holder.set_aside():
                    self._observe(self.holder.current or hold)
                self._follow_plan()
            except Conflict:
                return
            except SettingContested as error:
                self.end(str(error))
                return
            except TuningError as error:
                log.warning("event=not_observed device=%s why=%r", self.device, str(error))
            self._due_at = self.clock.monotonic() + hold.order.observe_s

    def end(self, why: str) -> None:
        """End the hold, restore the device, and queue the report for the tuner.

        A failed restore is logged; the journal entry stays, so that it is retried.
        """
        try:
            self.holder.end(why)
        except ActuationError as error:
            log.error("event=not_restored device=%s why=%r", self.device, str(error))
        self.tell()

    def tell(self) -> None:
        """Queue the report that a hold has ended, if that is not done yet."""
        hold = self.holder.unreported
        if hold is not None:
            self.link.keep(ended_report(self.device, hold))
            self.holder.mark_reported()

    def _observe(self, hold: Hold) -> None:
        """Measure one window of the held setting, judge it, and report it if it counts.

        Raises:
            Conflict: the agent must stop.
            MeasurementError: the window has no result; a hold does not end for that.
        """
        order = hold.order
        ask = Ask(
            metrics=tuple(dict.fromkeys([*order.metrics, *(x.metric for x in hold.limits)])),
            window_s=order.window_s,
            max_window_s=order.window_s,
            context=self.bench.target.askable(order.plan.context(order.plan.rows[hold.row])),
            follows=order.follows,
        )
        began = self.bench.clock.monotonic()
        incarnation = self.holder.incarnation
        setting = self.bench.target.caps.clipped(hold.setting)
        measured = self.bench.window(setting, ask, self.check, self.rng, began)
        if self._started_again(incarnation):
            return
        if measured.changed and self._changed_its_row(hold):
            return
        if measured.changed:
            self.end(measured.changed)
            return
        if measured.capped:
            log.info("event=window_discarded device=%s why=%r", self.device, measured.capped)
            return
        self.context = context_of(measured.measurement)
        now = self.clock.monotonic()
        # A limit that is broken below the held setting is broken by the power cap, not by the setting.
        own = setting == dict(hold.setting)
        why = self.holder.observed(measured.measurement) if own else ""
        hold = self.holder.current or hold
        broken = bool(why or hold.broken.get(hold.row, 0))
        if measured.foreign:
            # The window is judged although it is not reported: the limit was kept or broken.
            log.warning("event=window_not_reported device=%s why=%r", self.device, measured.foreign)
        elif broken or now - self._reported_at >= order.report_s:
            self._reported_at = now
            self.link.keep(
                HoldReport.of(
                    order,
                    device=self.device,
                    setting=setting,
                    measurement=measured.measurement,
                    speaks_s=self._spoken_for(measured, alone=broken),
                )
            )
        elif measured.measurement.load.completed:
            self._left_out_s += now - self._since
        if why:
            self.end(why)

    def _spoken_for(self, measured: MeasuredWindow, *, alone: bool) -> float:
        """Return the seconds for which a reported window speaks: its own, and those of windows left out.

        A window without an item speaks for none. One that breaks a limit speaks `alone`: each of them is
        reported, so it is none of those left out. No window speaks for time before the last one's end.
        """
        window, own_s = measured.measurement, self.clock.monotonic() - self._since
        if not window.load.completed:
            return 0.0
        end, others_s = window.started_at + timedelta(seconds=window.seconds), self._left_out_s
        most_s = max(0.0, (end - self._reported_until).total_seconds())
        self._left_out_s, self._reported_until = 0.0, end
        return min(max(own_s, window.seconds) + (0.0 if alone else others_s), most_s)

    def _follow_plan(self) -> None:
        """Follow a plan by a quantity that windows measure; end the hold if that fails."""
        try:
            self.follow(self.context)
        except ActuationError as error:
            self.end(f"the plan could not be followed: {error}")

    def _changed_its_row(self, hold: Hold) -> bool:
        """Whether a workload that follows the plan itself changed its row within the window."""
        changed = (
            self.holder.handed and hold.order.plan.row_of(self.bench.target.read()) is not None
        )
        if changed:
            log.info("event=window_discarded device=%s why='the plan changed its row'", self.device)
        return changed

    def _started_again(self, incarnation: str) -> bool:
        """Whether the workload was restarted since the window began, so that its setting was not ours.

        The held setting is then applied, if the follower has not done so.

        Raises:
            ActuationError: the workload does not answer, or cannot be set yet; the follower
                retries.
        """
        restartable = self.bench.target.restartable
        if restartable is None:
            return False
        now = restartable.incarnation()
        if now != incarnation:
            self.holder.take_up(now)
            log.warning(
                "event=window_discarded device=%s why='the workload was restarted'", self.device
            )
        return now != incarnation


def ended_report(device: str, hold: Hold) -> HoldReport:
    """Return the report to the tuner with the reason why a hold has ended."""
    return HoldReport.of(hold.order, device=device, setting=hold.setting, ended=hold.ended)
