"""The signal of a fine-tuning job beside an inference, so that a setting is held for the inference alone.

A job holds a lock on a file as long as any process of it runs. The kernel releases the lock when they are
gone, also after a kill, so that the state is never stale. The signal is a number of programs, not 0 or 1,
since a load of 0 is no load to compare windows at.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agents.target.side import SignalSample
from tuner.core import ActuationError, Clock, Conflict, Signal

ALONE, BESIDE = 1.0, 2.0
WAIT_S, LOOK_S = 1.0, 0.05
"""The longest wait of a job for the lock, which a reader holds for an instant, and the retry interval."""


class ProgramsSignal:
    """The number of programs that share the device: 1 for the inference alone, 2 beside a job."""

    signal = Signal("programs")

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    def read(self) -> SignalSample:
        """Return the current number. Raises ActuationError: the file cannot be read."""
        try:
            with self._lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return SignalSample(ALONE)
        except BlockingIOError:
            return SignalSample(BESIDE)
        except OSError as error:
            raise ActuationError(
                f"cannot read {self._lock}: {error.strerror}", hint="make it readable for the agent"
            ) from error
        return SignalSample(ALONE)

    @contextmanager
    def beside(self, clock: Clock) -> Iterator[int]:
        """Count a job within the block; yield the file descriptor that its processes inherit.

        Raises:
            Conflict: another job runs.
            ActuationError: the file cannot be written.
        """
        try:
            held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ActuationError(
                f"cannot write {self._lock}: {error.strerror}", hint="create its folder"
            ) from error
        try:
            self._take(held, clock)
            yield held
        finally:
            os.close(held)

    def _take(self, held: int, clock: Clock) -> None:
        """Take the lock. Raises Conflict: another job holds it."""
        until = clock.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.monotonic() >= until:
                    raise Conflict(
                        f"another fine-tuning job holds {self._lock}", hint="wait for its end"
                    ) from None
                clock.sleep(LOOK_S)
            else:
                return
