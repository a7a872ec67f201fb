"""One observed device's loop: measure a window every few seconds, and poll; nothing is ever set.

Its target has no actuator, so that no order of a tuner could be carried out.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable

from agents.agent.contact import PACE_S, Contact
from agents.agent.loop import DeviceAgent
from agents.agent.surroundings import LoopStatus, Surroundings
from agents.target.observe import Ask, Observer
from agents.target.window_counts import WindowCounts
from tuner.core import Applied, Conflict, Device, Level, TuningError
from tuner.moments import when
from tuner.wire import LONGEST_POLL_S, ONLY_OBSERVED, HoldReport, Poll

log = logging.getLogger(__name__)

WINDOW_S = 10.0
"""The longest window in seconds: as long as one of `jouletune observe`."""
MEASURER_S = 5.0
"""The wait at a stop for the window under way, in seconds."""
HUNG_S = 60.0
"""A meter or workload that does not answer for this long, in seconds, counts as hung: our choice."""


class ObservingAgent:
    """The loop of one device that is only observed; a second thread measures.

    A window of `observer` begins every `observe_s` seconds. `close` releases the device.
    """

    files_waiting = 0
    broken_windows = None

    def __init__(
        self,
        device: Device,
        observer: Observer,
        observe_s: float,
        around: Surroundings,
        rng: random.Random,
        close: Callable[[], None],
    ) -> None:
        self.device, self.close = device, close
        self.waiting = threading.Event()
        self.standing = LoopStatus()
        self._observer, self._observe_s = observer, observe_s
        self._around, self._rng = around, rng
        self._contact = Contact(device.id, around, rng)
        self._polled_at = -math.inf
        self._answered_at, self._answered, self._failed = math.inf, around.now(), ""

    @property
    def counts(self) -> WindowCounts:
        """Return the totals of the device's windows."""
        return self._observer.counts

    def begin(self) -> None:
        """Do nothing: there is nothing to restore."""

    def run(self) -> None:
        """Measure and poll until stopped.

        Raises:
            Unauthorised, ProtocolMismatch, InvalidInput: the tuner has never accepted this agent.
            Exception: an unexpected error of a meter ended the measuring.
        """
        ended, broken = threading.Event(), list[Exception]()
        name, args = f"{self.device.id} observed", (ended, broken)
        measuring = threading.Thread(target=self._measure, args=args, name=name, daemon=True)
        measuring.start()
        try:
            while not (broken or self._around.stop.is_set()):
                self.step()
        finally:
            ended.set()
            measuring.join(MEASURER_S)
        if broken:
            raise broken[0]

    def step(self) -> None:
        """Deliver the windows, and poll: the tuner sees that the device is online."""
        link, contact, now = self._around.link, self._contact, self._around.clock.monotonic
        contact.wait(self._polled_at + PACE_S - now())
        with contact.handled(lambda: False):
            contact.register(self.device)  # a new database refuses windows of a device it lacks
            link.deliver()
            at = self._around.now()
            applied = Applied(device=self.device.id, setting={}, level=Level.ORIGINAL, at=at)
            agent = f"{self.device.agent}/{self._around.start}"
            wait_s = min(LONGEST_POLL_S, self._observe_s)
            self._polled_at, self.standing.applied = now(), applied
            poll = Poll(agent=agent, applied=applied, wait_s=wait_s, unable=self._unable())
            self.waiting.set()
            try:
                link.next(self.device.id, poll)
            finally:
                self.waiting.clear()
            contact.worked(self.standing)

    def _unable(self) -> str:
        """Return why the device accepts no orders: it is only observed, or not measured since a time."""
        if self._around.clock.monotonic() - self._answered_at < HUNG_S:
            return self._failed or ONLY_OBSERVED
        return f"not measured since {when(self._answered)}: a meter or the workload does not answer"

    def _measure(self, ended: threading.Event, broken: list[Exception]) -> None:
        """Measure windows until stopped, or until an unexpected error; the polling thread delivers them."""
        clock, first = self._around.clock, True

        def check() -> None:
            self._answered_at, self._answered = clock.monotonic(), self._around.now()
            if ended.is_set() or self._around.stop.is_set():
                raise Conflict("the agent was stopped")

        while not ended.is_set():
            due = clock.monotonic() + self._observe_s
            length = min(WINDOW_S, self._observe_s)
            ask = Ask(metrics=(), window_s=length, max_window_s=length, idle=first)
            try:
                check()
                began = self._observer.clock.monotonic()
                shown = self._observer.window({}, ask, check, self._rng, began).measurement
                first = False
                report = HoldReport(
                    device=self.device.id, study="", revision=0, setting={}, measurement=shown
                )
                self._around.link.keep(report)
                self._failed = ""
            except TuningError as error:
                since = when(self._around.now())
                self._failed = self._failed or f"not measured since {since}: {error}"
                log.warning("event=not_observed device=%s why=%r", self.device.id, str(error))
            except Exception as error:  # noqa: BLE001  `run` raises it
                broken.append(error)
                return
            self._answered_at = math.inf  # it waits for the next window
            ended.wait(max(0.0, due - clock.monotonic()))


DeviceLoop = DeviceAgent | ObservingAgent
