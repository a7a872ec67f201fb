"""Side of a server that the agent started: restarted if it has ended, and ended with the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.host.processes.server_process import ServerProcess
from agents.target.side import (
    Closing,
    LiveSignal,
    Restartable,
    Side,
    SignalSample,
    WaitingSignal,
)
from tuner.core import Actuator, Setting, TuningError


def revived(child: ServerProcess, attach: Callable[[str], Side]) -> Side:
    """Attach to a server that the agent started; `read` and `apply` restart it if it has ended.

    Raises:
        TuningError: the attachment failed; the server was ended.
    """
    try:
        side = attach(child.url)
    except TuningError:
        child.end()
        raise
    signals = (
        (RevivingWaitingSignal if isinstance(live, WaitingSignal) else RevivingSignal)(child, live)
        for live in side.signals
    )
    return replace(side, actuator=RevivingActuator(child, side.actuator), signals=tuple(signals))


class RevivingActuator:
    """Set a server's knobs, restarting the server first if it has ended; closing ends it."""

    def __init__(self, child: ServerProcess, actuator: Actuator) -> None:
        self._child = child
        self._actuator = actuator

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError, DeviceLost."""
        self._child.revive()
        return self._actuator.read()

    def apply(self, setting: Setting) -> None:
        """Put a setting in force. Raises UnknownKnob, OutOfRange, ActuationError, DeviceLost."""
        self._child.revive()
        self._actuator.apply(setting)

    def incarnation(self) -> str:
        """Return an identifier that differs after each start.

        Raises DeviceLost, WorkloadChanged.
        """
        self._child.revive()
        assert isinstance(self._actuator, Restartable)
        return self._actuator.incarnation()

    def close(self) -> None:
        """End the connection, and the server."""
        if isinstance(self._actuator, Closing):
            self._actuator.close()
        self._child.end()


class RevivingSignal:
    """A signal of the server, which is restarted first if it has ended."""

    def __init__(self, child: ServerProcess, live: LiveSignal) -> None:
        self.signal = live.signal
        self._child = child
        self._live = live

    def read(self) -> SignalSample:
        """Return the current value. Raises DeviceLost, WorkloadChanged."""
        self._child.revive()
        return self._live.read()


class RevivingWaitingSignal(RevivingSignal):
    """A reviving signal that can be waited for."""

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        """Return the value once it is at least `value`, or after `seconds`. Raises as `read`."""
        self._child.revive()
        assert isinstance(self._live, WaitingSignal)
        return self._live.wait_above(value, seconds)
