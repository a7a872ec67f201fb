"""Workers that compute suggestions: their port, and child processes on this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from typing import Protocol

from tuner.core import TuningError


class WorkerLost(TuningError, code="worker_lost"):
    """The worker of a suggestion was lost, or took too long. Ask another worker: nothing was stored."""


class SuggestionWorker(Protocol):
    """A worker that answers one question at a time; used by one thread."""

    def answer(self, question: bytes, within_s: float) -> bytes:
        """Return the answers to a question. Raises WorkerLost; the next call uses a new process or node."""
        ...

    def close(self) -> None:
        """Release the worker's process. May be called twice."""
        ...


class LocalWorker:
    """A child process, started at the first question and again after a loss."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, question: bytes, within_s: float) -> bytes:
        """Return the answers to a question. Raises WorkerLost."""
        process = self._running()
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(within_s, end)
        timer.daemon = True
        timer.start()
        line = b""
        try:
            with suppress(OSError):
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(question + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return line
        self.close()
        if late.is_set():
            raise WorkerLost(f"no suggestion after {within_s:g} s")
        raise WorkerLost(f"the process of a suggestion ended ({process.returncode})")

    def close(self) -> None:
        """Kill the process, even in the middle of a question."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for end in (process.stdin, process.stdout):
            if end is not None:
                with suppress(OSError):
                    end.close()

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the worker's process; start it if it does not run."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tuner.suggesting.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process
