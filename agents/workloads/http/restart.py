"""Restarts a service by the command that its file on this host names; no shell, and no value in it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable

from agents.host.local_http import LocalHttp
from agents.workloads.http.config import RestartCommand
from tuner.core import ActuationError, Clock, DeviceLost

LOOK_S = 0.5
LAST_WORDS = 300


class ServiceRestart:
    """Runs the command, and waits until the service serves again.

    `started` tells when the service was started, in its own words, empty where it does not say. Where it
    says so, a service that was not started anew is not taken for one that was.
    """

    def __init__(
        self,
        http: LocalHttp,
        command: RestartCommand,
        started: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._http, self._command, self._started, self._clock = http, command, started, clock

    def run(self, *, anew: bool) -> None:
        """Run the command; `anew` is whether the service must have been started by it.

        Raises:
            ActuationError: the command failed, or the service is not ready in time.
        """
        before = self._when_started() if anew else ""
        end = self._clock.monotonic() + self._command.seconds
        self._run(end - self._clock.monotonic())
        while (missing := self._missing(before)) and self._clock.monotonic() < end:
            self._clock.sleep(LOOK_S)
        if missing:
            raise ActuationError(
                f"{missing} {self._command.seconds:g} s after {self._words}",
                hint="see its log; where a start takes longer, say it as seconds in [restart]",
            )

    @property
    def _words(self) -> str:
        return " ".join(self._command.argv)

    def _run(self, seconds: float) -> None:
        # To a file: a pipe would stay open in whatever the command leaves running.
        with tempfile.TemporaryFile() as output:
            try:
                status = subprocess.run(
                    self._command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=seconds,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise ActuationError(f"{self._words} did not end within {seconds:g} s") from None
            except OSError as error:
                raise ActuationError(f"cannot run {self._words}: {error.strerror}") from None
            if status:
                output.seek(0)
                words = output.read().decode(errors="replace").strip()[-LAST_WORDS:]
                raise ActuationError(
                    f"{self._words} ended with {status}: {words or 'it printed nothing'}",
                    hint="run it by hand as the agent's user",
                )

    def _missing(self, before: str) -> str:
        """Return what is not as it should be yet; empty where nothing."""
        try:
            self._http.call("GET", self._command.ready)
            now = self._started()
        except (ActuationError, DeviceLost) as error:
            return error.message
        if before and now == before:
            return f"{self._http.url} still runs as it was started before"
        return ""

    def _when_started(self) -> str:
        try:
            return self._started()
        except (ActuationError, DeviceLost):  # it is down: whatever answers next was started anew
            return ""
