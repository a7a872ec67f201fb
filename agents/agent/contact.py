"""The contact of one device's loop with the tuner: registration, and what an error changes."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agents.agent.surroundings import LoopStatus, Surroundings
from agents.target.observe import CLOCK_STEP_S
from agents.tuner_link.client import Backoff
from tuner.core import (
    Device,
    InvalidInput,
    LinkError,
    NotFound,
    ProtocolMismatch,
    TuningError,
    Unauthorised,
)

log = logging.getLogger(__name__)

PACE_S = 1.0
"""The least time between two requests that change nothing, in seconds, even if answers come at once."""
LOOK_S = 0.5
"""The longest sleep between two checks for a stop, in seconds."""


class Contact:
    """Register one device, wait between errors, and log each error once; used by one thread."""

    def __init__(self, device: str, around: Surroundings, rng: random.Random) -> None:
        self._device, self._around = device, around
        self._backoff = Backoff(rng)
        self._registered = self._reached = False
        self._wrong = ""

    def register(self, device: Device) -> None:
        """Register the device unless that is done. Raises TuningError."""
        if not self._registered:
            self._around.link.register(device)
            self._registered = True
            log.info("event=registered device=%s", self._device)

    def outdated(self) -> None:
        """Register the device again: its description has changed."""
        self._registered = False

    @contextmanager
    def handled(self, must_stay: Callable[[], bool]) -> Iterator[None]:
        """Log an error of the block, and wait.

        Raises:
            Unauthorised, ProtocolMismatch, InvalidInput: the tuner has never accepted this agent, and
                `must_stay` is false. Nothing was changed, and a retry would not help.
        """
        try:
            yield
        except NotFound as error:
            log.warning("event=forgotten device=%s why=%r", self._device, str(error))
            self._registered = False
            self.wait(self._backoff.failed())
        except (Unauthorised, ProtocolMismatch, InvalidInput) as error:
            if not self._reached and not must_stay():
                raise
            self.trouble(error, final=True)
        except TuningError as error:
            self.trouble(error)

    def worked(self, standing: LoopStatus) -> None:
        """Record a successful contact, and reset the backoff."""
        if self._wrong:
            log.info("event=recovered device=%s", self._device)
        self._reached, self._wrong = True, ""
        standing.heard_at = self._around.now()
        self._backoff.worked()

    def trouble(self, error: TuningError, *, final: bool = False) -> None:
        """Log an error, once while its text is the same, and wait."""
        if self._around.stop.is_set():
            return
        if str(error) != self._wrong:
            self._wrong = str(error)
            log.error("event=%s device=%s why=%r", error.code, self._device, self._wrong)
        again_s = error.again_s if isinstance(error, LinkError) else 0.0
        self.wait(max(again_s, self._backoff.failed(final=final)))

    def refused(self) -> None:
        """Wait as after a failure."""
        self.wait(self._backoff.failed())

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until a stop."""
        until = self._around.clock.monotonic() + seconds
        while (left := until - self._around.clock.monotonic()) >= CLOCK_STEP_S:
            if self._around.stop.is_set():
                return
            self._around.clock.sleep(min(left, LOOK_S))
