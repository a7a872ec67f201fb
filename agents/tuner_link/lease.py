"""The lease of a trial, renewed while the trial runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from agents.tuner_link.client import TunerClient
from tuner.core import Conflict, NotFound, StaleToken, TuningError
from tuner.wire import Renewal

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews a trial's lease in the background while the trial runs.

    The trial ends if the tuner ends the lease. It continues if the tuner is not reached: this agent keeps
    the device safe, and the tuner gives the same trial to no other agent.
    """

    def __init__(
        self,
        link: TunerClient,
        renewal: Renewal,
        lease_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._renewal = renewal
        self._every_s = lease_s / 3.0
        self._monotonic = monotonic
        self._renewed_s = monotonic()
        self._done = threading.Event()
        self._lost: TuningError | None = None
        self._thread = threading.Thread(target=self._work, name="lease", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def age_s(self) -> float:
        """Return the seconds since the tuner granted or renewed the lease."""
        return self._monotonic() - self._renewed_s

    def check(self) -> None:
        """Raise StaleToken if the tuner has ended the lease."""
        if self._lost is not None:
            raise StaleToken(f"the tuner ended the lease: {self._lost.message}")

    def _work(self) -> None:
        """Renew until the trial or the lease ends; log other errors."""
        while not self._done.wait(self._every_s):
            try:
                self._link.renew(self._renewal)
                self._renewed_s = self._monotonic()
            except (NotFound, Conflict) as error:
                self._lost = error
                return
            except TuningError as error:
                log.warning("event=renewal_failed device=%s why=%r", self._renewal.device, error)
