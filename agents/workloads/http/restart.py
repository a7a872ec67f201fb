"""Makes a service reload its files, by the command or the signal in its file on this host."""

from __future__ import annotations

from collections.abc import Callable

from agents.host.http.local_http import LocalHttp
from agents.host.processes.commands import run_argv
from agents.host.processes.service_process import ServiceProcess
from agents.workloads.http.config import RenewalConfig
from tuner.core import NO_ANSWER, ActuationError, Clock, DeviceLost

LOOK_S = 0.5
NOT_RESTARTED = "the service has not restarted"


class ServiceRenewal:
    """Run the command or send the signal, and wait until the service serves again.

    It serves once it answers `ready`, if there is such a path. `started` returns the service's start time
    as it reports it, empty if it reports none. If it reports one, only a changed start time counts as a
    restart.
    """

    def __init__(
        self,
        config: RenewalConfig,
        ready: str,
        http: LocalHttp | None,
        process: ServiceProcess | None,
        started: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._config, self._http, self._process = config, http, process
        self._ready, self._started, self._clock = ready, started, clock

    def run(self, *, anew: bool) -> None:
        """Reload; `anew` requires that this restarts the service.

        Raises:
            ActuationError: the command failed, or the service is not ready in time.
            DeviceLost: the process for the signal does not exist.
        """
        before = self._when_started() if anew else ""
        end = self._clock.monotonic() + self._config.seconds
        if self._config.command:
            run_argv(self._config.command, self._config.seconds)
        else:
            assert self._process is not None
            self._process.signal(self._config.signal)
        while (missing := self._missing(before)) and self._clock.monotonic() < end:
            self._clock.sleep(LOOK_S)
        if missing:
            silent = f"the service {NO_ANSWER}: " if anew and missing != NOT_RESTARTED else ""
            raise ActuationError(
                f"{silent}{missing} {self._config.seconds:g} s after {self._config}",
                hint="check its log; if a start takes longer, set seconds in [restart]",
            )

    def _missing(self, before: str) -> str:
        """Return the condition that is not met yet; empty if all are."""
        try:
            if self._http is not None and self._ready:
                self._http.call("GET", self._ready)
            now = self._started()
        except (ActuationError, DeviceLost) as error:
            return error.message
        if before and now == before:
            return NOT_RESTARTED
        return ""

    def _when_started(self) -> str:
        """Return the start time; empty if the service does not answer."""
        try:
            return self._started()
        except (ActuationError, DeviceLost):  # it is down: the next answer comes from a new start
            return ""
