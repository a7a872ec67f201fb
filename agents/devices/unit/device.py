"""A systemd service's flags for an agent, set by the actuator: knobs without a meter.

A change restarts the service, which is the target's workload: it counts as set once the workload answers.
"""

from __future__ import annotations

from pathlib import Path

from agents.actuator_client.client import RemoteKnobs, actuator_socket, open_remote
from agents.devices.unit.knobs import NAME
from agents.host.machine import HostClock
from agents.host.processes import commands
from agents.target.side import NothingToMeasure, Restartable, Serves, Side, WorkloadChanged
from tuner.core import NO_ANSWER, ActuationError, Clock, InvalidInput, NotFound, Setting

UNIT = "unit:"
"""Prefix of the actuator's names for services."""
START_S = 300.0
"""Longest wait in seconds for the first answer after a restart: a large model loads for minutes."""
LOOK_S = 0.5
MOST_STARTS = 2
"""A service that systemd has restarted this many times since our restart counts as failed. Our choice."""
NOT_STARTED = ("systemctl restart", "after its restart")
"""Parts of the actuator's messages for a service that systemd could not start."""
GRANT = (
    "grant its flags in actuator.toml, then restart jouletune-actuator; `jouletune actuator status`"
)


def open_unit(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open the granted flags of `unit:NAME.service`.

    Raises:
        InvalidInput: that is not a service's name.
        ActuationError: the actuator does not answer, or grants no flag of that service.
    """
    if not NAME.fullmatch(rest):
        raise InvalidInput(f"there is no service {rest!r}", hint="write unit:NAME.service")
    spec, clock = f"{UNIT}{rest}", HostClock()
    try:
        remote = open_remote(actuator_socket(root), spec, clock)
    except NotFound as error:
        hint = f'add "{spec}" to drivers in actuator.toml; {error.hint}'
        raise ActuationError(f"{spec}: {error.message}", hint=hint) from error
    except ActuationError as error:
        raise ActuationError(f"{spec} cannot be set: {error.message}", hint=error.hint) from error
    reasons = "; ".join(f"{flag}: {why}" for flag, why in remote.without.items())
    if not remote.space.knobs:
        remote.close()
        why = remote.cannot or reasons or "no flag of it is granted"
        raise ActuationError(f"{spec} cannot be set: {why}", hint=GRANT)
    return Side(
        name=rest,
        kind="unit",
        board=rest,
        version="",
        space=remote.space,
        metrics=(),
        actuator=UnitKnobs(remote, rest, clock),
        meter=NothingToMeasure(),
        cannot=remote.without,
    )


class UnitKnobs:
    """Set a service's flags; after a restart `read` waits until the workload answers again."""

    def __init__(self, remote: RemoteKnobs, name: str, clock: Clock) -> None:
        self._remote, self._name, self._clock = remote, name, clock
        self._workload: Side | None = None
        self._starting = False
        self.conflict, self.close, self.hold = remote.conflict, remote.close, remote.hold

    def restarts(self, workload: Side) -> None:
        """Store the workload that a change restarts."""
        self._workload = workload

    def read(self) -> Setting:
        """Return the setting in force; after a restart once the workload answers. Raises ActuationError."""
        setting = self._remote.read()
        if self._starting:
            self._starting = False  # we report a silent service once
            self._await_answer()
        return setting

    def apply(self, setting: Setting) -> None:
        """Set the flags; restart the service if they change.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space, or not granted.
            ActuationError: the setting is not in force; the flags are those of the hold or the unit's own.
        """
        before = self._remote.read()
        self._starting = self._starting or any(before[k] != v for k, v in setting.items())
        try:
            self._remote.apply(setting)
        except ActuationError as error:
            if not any(words in error.message for words in NOT_STARTED):
                raise
            why = f"{self._name} {NO_ANSWER}: {error.message}"
            raise ActuationError(why, hint=error.hint or self._log) from error

    def release(self) -> None:
        """Restore the unit's own command; restart the service if it differs. Raises ActuationError."""
        self._starting = self._starting or self._remote.read() != self._remote.space.default
        self._remote.release()

    @property
    def _log(self) -> str:
        """The hint to read the service's log."""
        return f"check its log: journalctl -u {self._name}"

    def _await_answer(self) -> None:
        """Wait until the workload answers.

        Raises:
            ActuationError: it does not answer in time, or systemd reports that it has failed.
        """
        end, first = self._clock.monotonic() + START_S, self._starts()[0]
        while silent := self._silent():
            starts, state = self._starts()
            first = starts if first is None else first
            again = 0 if starts is None or first is None else starts - first
            failed = state in ("failed", "inactive") or again >= MOST_STARTS
            if failed or self._clock.monotonic() >= end:
                why = f"systemd shows it {state}, started {again} times more" if failed else silent
                seconds = self._clock.monotonic() - end + START_S
                raise ActuationError(
                    f"{self._name} {NO_ANSWER}: {seconds:.3g} s without an answer; {why}",
                    hint=self._log,
                )
            self._clock.sleep(LOOK_S)

    def _starts(self) -> tuple[int | None, str]:
        """Return the number of systemd's automatic restarts, and the state; None and empty if unknown."""
        try:
            shown = commands.unit_properties(self._name, "NRestarts", "ActiveState")
            return int(shown["NRestarts"]), shown["ActiveState"]
        except (ActuationError, ValueError):  # the deadline still applies
            return None, ""

    def _silent(self) -> str:
        """Return the reason why the workload does not answer; empty if it does. Raises WorkloadChanged."""
        actuator = None if self._workload is None else self._workload.actuator
        try:
            if isinstance(actuator, Serves):
                actuator.demand_answer()
            elif isinstance(actuator, Restartable):
                actuator.incarnation()
        except WorkloadChanged:
            raise
        except ActuationError as error:
            return error.message
        return ""
