"""A device as a member of a power budget: gets caps from the tuner and follows them without it."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass

from agents.actuator_client.caps import HostCaps
from agents.agent.contact import PACE_S
from agents.agent.power_guard import PowerGuard
from agents.agent.surroundings import Surroundings
from agents.holding.holder import Holder
from agents.target.target import Target
from agents.tuner_link.client import Backoff
from tuner.core import CapSchedule, CapStep, TuningError
from tuner.wire import BudgetOrder, BudgetReport

log = logging.getLogger(__name__)

WAIT_S = 10.0
"""The longest time that the tuner may delay an answer, in seconds; a longer silence is a lost member."""
TICK_S = 0.5
"""The period of checks for changed caps, in seconds: the actuator lowers by itself, this process raises."""
LONGEST_WAIT_S = 4.0
"""The longest wait after an error, in seconds: a step takes effect within 10 s of the tuner's start."""


@dataclass(eq=False)
class BudgetKeeper:
    """Handles one device's budget beside its loop; a device without cap knobs needs none.

    The actuator keeps the steps and lowers the values, so a cap holds without the tuner and this process.
    Only rises need this process: it raises a hold, or the original within the caps if the device has no
    hold.
    """

    device: str
    agent: str
    target: Target
    holder: Holder
    around: Surroundings
    rng: InitVar[random.Random]

    def __post_init__(self, rng: random.Random) -> None:
        self._caps = self.target.caps
        self._backoff = Backoff(rng, most_s=LONGEST_WAIT_S)
        self._guard = PowerGuard(self.target, self.around.clock)
        self._above: tuple[float, dict[str, float]] = 0.0, {}
        self._followed: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    def ask(self, stop: threading.Event) -> None:
        """Exchange reports and caps with the tuner until stopped."""
        while not stop.is_set():
            stop.wait(self.exchange())

    def follow(self, stop: threading.Event) -> None:
        """Follow the caps until stopped."""
        while not stop.wait(TICK_S):
            self.watch()
            self.tick()

    def exchange(self) -> float:
        """Report the caps in force, obey the tuner's answer, and return the seconds until the next call."""
        clock = self.around.clock
        began = clock.monotonic()
        with self._logged_once("budget", logging.WARNING):
            answer = self.around.link.budget(self.device, self._report())
            self._obey(answer, clock.monotonic())
            self._backoff.worked()
            return 0.0 if answer.kind != "none" else max(0.0, began + PACE_S - clock.monotonic())
        return self._backoff.failed()

    def _report(self) -> BudgetReport:
        """Return the report of the caps in force, with the reason if they cannot be read or kept."""
        kept, unable = HostCaps(), ""
        try:
            kept = self._caps.look()
        except TuningError as error:
            unable = str(error)
        return BudgetReport(
            agent=self.agent,
            knobs=self._caps.knobs,
            group=kept.group,
            revision=kept.schedule.revision,
            at_most=self._caps.at_most(),
            most_w=self._caps.most_w(),
            above_w=self._above[0],
            above_at=self._above[1],
            wait_s=0.0 if unable else WAIT_S,
            unable=unable or kept.wrong,
        )

    def _obey(self, order: BudgetOrder, received_s: float) -> None:
        """Keep the caps that the tuner orders; times count from the receipt of its answer."""
        if order.kind == "caps":
            late_s = self.around.clock.monotonic() - received_s
            steps = tuple(CapStep(s.in_s - late_s, s.cap_w, s.at_most) for s in order.steps)
            self._caps.cap(order.group, CapSchedule(order.revision, steps))
            self._above = 0.0, {}
            log.info(
                "event=caps device=%s group=%s revision=%d",
                self.device,
                order.group,
                order.revision,
            )
        elif order.kind == "release":
            self._caps.leave()
            log.info("event=left_budget device=%s group=%s", self.device, order.group)
        self.tick()

    def watch(self) -> None:
        """Go to the floor if the device draws more under its clock ceilings than the step in force allows.

        The next report has the measured excess, and the tuner then divides the budget anew.
        """
        with self._logged_once("power_not_watched"):
            step = self._caps.unsure()
            watts = self._guard.above_w(step)
            if step is None or not watts:
                return
            at = self._caps.at_most()
            if watts > self._above[0]:
                self._above = watts, at
            floor = {knob.name: knob.floor for knob in self._caps.knobs}
            if at == floor:
                return
            log.warning("event=above_cap device=%s watts=%.0f at_most=%r", self.device, watts, at)
            self._caps.fall()

    def tick(self) -> None:
        """Adjust the hold, or the original, to the caps in force."""
        with self._logged_once("cap_not_followed"):
            most = self._caps.at_most()
            if self.holder.is_lent:
                return
            if self.holder.current is None:
                self._caps.rest()
            elif most != self._followed:
                self.holder.enforce()
            self._followed = most

    @contextmanager
    def _logged_once(self, event: str, level: int = logging.ERROR) -> Iterator[None]:
        """Log an error once, until another one or a success follows; it does not leave the block."""
        try:
            yield
            self._logged.pop(event, None)
        except TuningError as error:
            if str(error) != self._logged.get(event):
                log.log(level, "event=%s device=%s why=%r", event, self.device, str(error))
            self._logged[event] = str(error)
