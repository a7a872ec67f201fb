"""One device's loop: restore or hold, poll, run a trial, restore, report, and poll again."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, replace
from pathlib import Path

from agents.agent.budget import BudgetKeeper
from agents.agent.contact import LOOK_S, PACE_S, Contact
from agents.agent.surroundings import LoopStatus, Surroundings
from agents.agent.trials import TrialRunner, restarts_workload
from agents.holding.hold import Hold
from agents.holding.holder import Holder
from agents.holding.journal import LIFT
from agents.holding.parking import Parking
from agents.holding.plan_runner import PlanRunner
from agents.holding.watch import Watch
from agents.target.measure import Measurer
from agents.target.window_counts import WindowCounts
from tuner.core import (
    ActuationError,
    Conflict,
    Device,
    InvalidInput,
    Level,
    TuningError,
    render_setting,
)
from tuner.wire import (
    LONGEST_POLL_S,
    Assignment,
    HoldOrder,
    Idle,
    Poll,
    Release,
)

log = logging.getLogger(__name__)

FOLLOWED_POLL_S = 10.0
"""The longest age of the tuner's figures of a load, in seconds, while a hold's plan has several rows."""
FOLLOWER_S = 5.0
"""The wait at a stop for a change of a hold under way, in seconds; the hold records the new setting."""
NEXT_TRIAL_S = 5.0
"""How long a tried setting stays for the next trial, in seconds: the tuner needs time to suggest one."""


@dataclass(eq=False)
class DeviceAgent:
    """The loop of one device; used by one thread.

    `attached` has the data with which `agent revert` opens the device again. `waiting` is set while the
    loop only waits for the tuner, so that a stop need not wait for it. `runner` follows the plan of a
    hold, and parks the device by `parking`. `standing` is the loop's state for other threads.
    """

    device: Device
    bench: Measurer
    holds: InitVar[Path]
    around: Surroundings
    attached: Mapping[str, str]
    rng: InitVar[random.Random]
    parking: Parking | None = None

    def __post_init__(self, holds: Path, rng: random.Random) -> None:
        device, bench, around = self.device, self.bench, self.around
        self.waiting = threading.Event()
        self._target = bench.target
        self._contact = Contact(device.id, around, rng)
        self._begun = False
        self._mended = True
        self.standing = LoopStatus()
        self._polled_at = around.clock.monotonic()
        self._holder = Holder(
            device.id,
            bench.target,
            folder=holds,
            journal=around.journal,
            attached=self.attached,
            host=around.host,
            clock=around.clock,
            now=around.now,
        )
        self.runner = PlanRunner(
            device.id, bench.target, self._holder, bench.clock, bench.queue, self.parking
        )
        self._watch = Watch(
            device.id,
            bench,
            self._holder,
            around.link,
            around.clock,
            self._check_stop,
            rng,
            self.runner.observed,
        )

        self._trials = TrialRunner(
            device.id, bench, self._holder, around, self.attached, self.standing, self._check_stop
        )

        self.budget = BudgetKeeper(device.id, device.agent, bench.target, self._holder, around, rng)

    @property
    def counts(self) -> WindowCounts:
        """Return the totals of the device's windows."""
        return self.bench.counts

    @property
    def files_waiting(self) -> int:
        """Return the number of the device's files to restore once their CPU is online."""
        return sum(getattr(side.actuator, "waiting", 0) for side in self._target.sides.values())

    @property
    def broken_windows(self) -> int | None:
        """Return the number of consecutive windows in which the hold broke a limit; None without a hold."""
        hold = self._holder.current
        return None if hold is None else hold.broken.get(hold.row, 0)

    def close(self) -> None:
        """Release the device; its setting stays in force."""
        self._target.close()

    def run(self) -> None:
        """Run the loop until stopped.

        Raises:
            Unauthorised, ProtocolMismatch, InvalidInput: the tuner has never accepted this agent, and the
                device has no hold. Nothing was changed, and a retry would not help.
        """
        self.begin()
        ended = threading.Event()
        beside = [self._stand_by, self.runner.run]
        if self._target.caps.knobs:
            beside += [self.budget.ask, self.budget.follow]
        threads = [
            threading.Thread(target=work, args=(ended,), name=f"{self.device.id} held", daemon=True)
            for work in beside
        ]
        for thread in threads:
            thread.start()
        try:
            while not self.around.stop.is_set():
                self.step()
        finally:
            ended.set()
            for thread in threads:
                thread.join(FOLLOWER_S)
        try:
            self.around.link.deliver()
        except TuningError as error:
            log.warning("event=reports_kept device=%s why=%r", self.device.id, str(error))

    def begin(self) -> None:
        """Resume a valid hold from disk, or restore the device; `step` retries after an error."""
        try:
            self._begin()
        except TuningError as error:
            log.error("event=begin_failed device=%s why=%r", self.device.id, str(error))

    def _begin(self) -> None:
        """Load the hold; end it if it has expired, else put it in force. Raises TuningError."""
        if not self._begun:
            self._holder.load()
        why = self._holder.lapsed()
        if why and not self.around.journal.stays:
            self._watch.end(why)
        else:
            self.restore()
        self._begun = True

    def step(self) -> None:
        """Run the next part of the loop, and wait for the tuner if nothing is due."""
        with self._contact.handled(lambda: self._holder.current is not None):
            not_back = self._unmended()
            if not_back is None:
                self._watch.mind()
            self._watch.tell()
            self.around.link.deliver()
            self._redescribe()
            self._contact.register(self.device)
            order = self._next(not_back)
            if not_back is not None:  # the poll reported the error; its order is not carried out
                self._contact.trouble(not_back)
                return
            self._contact.worked(self.standing)
            self._obey(order)

    def _redescribe(self) -> None:
        """Register the device again if it offers other knobs or metrics than before."""
        space, cannot = self._target.offered, self._target.cannot
        if (space, cannot) != (self.device.space, self.device.cannot):
            self.device = replace(self.device, space=space, cannot=cannot)
            self._contact.outdated()

    def restore(self) -> None:
        """Restore the device to its hold; without one, to its original setting.

        Raises:
            ActuationError: it is not restored; the journal still has the original.
        """
        if self.around.journal.stays:
            self._holder.drop()
            log.warning("event=stays_original device=%s why=%r", self.device.id, LIFT)
            return
        hold = self._holder.current
        if hold is None:
            if self.around.journal.restore(self.device.id, self._target):
                log.info("event=restored device=%s", self.device.id)
            return
        try:
            self._holder.enforce()
        except TuningError as error:
            self._target.refuse_beside_a_job()  # the hold waits below the job's setting
            self._watch.end(f"it could not be applied again: {error}")
            return
        self._watch.speak_from_now()
        log.info(
            "event=hold_in_force device=%s study=%s setting=%r",
            self.device.id,
            hold.order.study,
            render_setting(hold.setting),
        )

    def _unmended(self) -> TuningError | None:
        """Return the error that prevents the device's restore; None if it is restored."""
        try:
            self._mend()
            self._mended = True
        except TuningError as error:
            self._mended = False
            return error
        return None

    def _mend(self) -> None:
        """Retry a failed write to disk or a failed restore.

        Raises TuningError, also while a batch job has a device: a poll then reports that.
        """
        if not self._begun:
            self._begin()
        self._holder.persist()
        # The journal is read during a hold, too: it writes a deleted file again.
        entry = self.around.journal.get(self.device.id)
        held = self._holder.current is not None
        again = self.around.journal.stays or not self._mended
        if (entry is not None and not held) or (held and again):
            self.restore()
        self._target.refuse_beside_a_job()

    # The tuner's orders

    def _next(
        self, not_back: TuningError | None, *, between: bool = False
    ) -> Assignment | HoldOrder | Idle | Release:
        """Poll the tuner; `between` two trials, with the setting of the first one still in force."""
        hold = self._holder.current
        applied = self._holder.applied()
        if not_back is not None or between:
            applied = replace(applied, level=Level.TRIAL)
        able = not_back is None
        unable = self.around.journal.unable(self.around.host.name) if able else str(not_back)
        self._polled_at = self.around.clock.monotonic()
        poll = Poll(
            agent=f"{self.device.agent}/{self.around.start}",
            applied=applied,
            holding=hold.order.study if hold else "",
            revision=hold.order.revision if hold else 0,
            # The windows of a hold are not evidence of the original setting.
            context={**(self._watch.context if hold else {}), **self.runner.context},
            wait_s=0.0 if not_back else NEXT_TRIAL_S if between else self._wait_s(hold),
            unable=unable,
        )
        self.standing.applied = applied
        if not between:  # between trials, a stop waits until the device is restored
            self.waiting.set()
        try:
            return self.around.link.next(self.device.id, poll)
        finally:
            self.waiting.clear()

    def _wait_s(self, hold: Hold | None) -> float:
        """Return how long the tuner may delay its answer, in seconds: the next poll has newer figures."""
        rows = len(hold.order.plan.rows) if hold is not None else 1
        return min(LONGEST_POLL_S if rows == 1 else FOLLOWED_POLL_S, self._watch.due_in_s())

    def _obey(self, order: Assignment | HoldOrder | Idle | Release) -> None:
        """Carry out the tuner's order, unless the agent stops or an order to stay is in force."""
        if self.around.stop.is_set():
            return
        if self.around.journal.stays:
            self._pace()
            return
        match order:
            case Assignment():
                self._try(order)
            case HoldOrder():
                self._hold(order)
            case Release():
                if self._holder.current is not None:
                    self._watch.end(order.why or "the tuner released the device")
                self._pace()
            case Idle():
                self._pace()

    def _hold(self, order: HoldOrder) -> None:
        """Start a hold; if it has already ended here, report its end again."""
        ended = self._holder.refuses(order)
        if ended:
            log.warning("event=hold_refused device=%s ended=%r", self.device.id, ended)
            self._holder.mark_reported(False)
            self._contact.refused()
            return
        hold = self._holder.current
        same_order = hold is not None and hold.order == order
        try:
            self._holder.take(order)
        except (ActuationError, InvalidInput) as error:
            self._watch.end(f"it could not be applied: {error}")
            return
        if same_order:
            self._pace()
        else:
            self._watch.start_now()

    def _try(self, order: Assignment) -> None:
        """Run one trial, restore the device, and queue the report."""
        hold = self._holder.current
        if hold is not None and hold.order.study != order.study:
            self._watch.end(f"study {order.study} has the device now")
        goes_on = hold is None and restarts_workload(order, self._target)
        report = self._trials.run(order, (lambda: None) if goes_on else self._restore_quietly)
        self.around.link.keep(report)
        if goes_on:
            self._go_on()

    def _go_on(self) -> None:
        """Obey the next order before a restore: a restore between two trials would cost two restarts."""
        try:
            self.around.link.deliver()
            order = self._next(None, between=True)
        except TuningError:  # the next poll reports it
            self._restore_quietly()
            return
        ends = self.around.stop.is_set() or self.around.journal.stays
        if ends or not isinstance(order, Assignment | HoldOrder):
            self._restore_quietly()
        self._obey(order)

    def _restore_quietly(self) -> None:
        """Restore the device; log an error, which `step` retries."""
        try:
            self.restore()
        except TuningError as error:
            log.error("event=not_restored device=%s why=%r", self.device.id, str(error))

    # Waiting

    def _check_stop(self) -> None:
        """Raise Conflict if the agent stops, or if the devices must stay at their originals."""
        if self.around.stop.is_set():
            raise Conflict("the agent was stopped")
        if self.around.journal.stays:
            raise Conflict("an operator keeps every device at its original setting", hint=LIFT)
        self._target.refuse_beside_a_job()

    def _pace(self) -> None:
        """Wait for the rest of PACE_S since the last poll, because the answer changed nothing."""
        self._contact.wait(self._polled_at + PACE_S - self.around.clock.monotonic())

    def _stand_by(self, ended: threading.Event) -> None:
        """End the hold at once when every device must stay at its original setting."""
        while not ended.wait(LOOK_S):
            held = self._holder.current is not None and not self._holder.is_aside
            if held and self.around.journal.stays:
                self._restore_quietly()
