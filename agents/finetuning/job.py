"""A fine-tuning job run by the agent: paused and resumed, and measured by its output."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from tuner.core import Clock, InvalidInput
from tuner.foreign_bodies import parsed

SUPERVISOR = "agents.finetuning.supervisor"
END_S = 15.0
TOTALS = ("steps", "gflop", "gbyte")


class FineTuningJob:
    """A command that fine-tunes, started paused.

    It may print lines of JSON with its totals so far: `steps`, and `gflop` and `gbyte` if it counts
    them. Other lines go to standard error. The job ends with this process, even if this process is
    killed. Its supervisor inherits the file descriptors `held`.

    Raises:
        InvalidInput: no command.
    """

    def __init__(self, command: Sequence[str], clock: Clock, held: Sequence[int] = ()) -> None:
        if not command:
            raise InvalidInput("there is no fine-tuning command", hint="write it after --")
        self._clock = clock
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(TOTALS, 0.0)
        self._ran_s, self._since = 0.0, clock.monotonic()
        self.running = True
        self._process = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=held,
            start_new_session=True,  # Ctrl-C is for this process, which ends the job
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()
        self.let(run=False)

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """The process id of its supervisor."""
        return self._process.pid

    def let(self, *, run: bool) -> None:
        """Pause or resume the job; do nothing if it is in that state already, or has ended."""
        if run == self.running:
            return
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.write("run\n" if run else "pause\n")
            self._process.stdin.flush()
        now = self._clock.monotonic()
        self._ran_s += now - self._since if self.running else 0.0
        self.running, self._since = run, now

    def totals(self) -> dict[str, float]:
        """Return its totals so far, and the seconds in which it was allowed to run."""
        going = self._clock.monotonic() - self._since if self.running else 0.0
        with self._lock:
            return {**self._totals, "ran_s": self._ran_s + going}

    def close(self) -> int:
        """End the job, and return its exit status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join(END_S)
        self._process.stdout.close()
        return status

    def _read(self, lines: IO[str]) -> None:
        """Add up the totals that the job prints; pass other lines to standard error."""
        for line in lines:
            try:
                record = parsed(line)
                fresh = {name: float(record[name]) for name in TOTALS if name in record}
            except (ValueError, TypeError, OverflowError):
                fresh = {}
            if not fresh or not all(map(math.isfinite, fresh.values())):
                sys.stderr.write(line)
                continue
            with self._lock:
                self._totals.update(fresh)
