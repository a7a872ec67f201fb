"""The reference workload as a child process of the agent: restarted if it ends, and ended with it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agents.host.processes.server_process import ServerProcess
from agents.target.side import (
    Closing,
    LiveSignal,
    Restartable,
    Side,
    SignalSample,
    WaitingSignal,
)
from agents.workloads.served.adapter import attach
from tuner.core import Actuator, Clock, InvalidInput, Setting, TuningError

SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


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


def start_reference(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Start the reference server, await its warm model, and attach to it; `close` ends it.

    If the server ends unexpectedly, setting or reading it restarts it, at its default setting.

    Raises:
        InvalidInput: a package that the server needs is not installed, the model does not fit in
            memory, or `spec` is not `reference`, the only model (a ResNet-18).
        DeviceLost: it does not start; the message has the last line of its log.
    """
    if spec != "reference":
        raise InvalidInput(
            f"there is no workload {spec!r}",
            hint="write reference (a ResNet-18 server); for your own server give its "
            "address, http://127.0.0.1:PORT, or a file that describes it, service:/PATH/FILE.toml",
        )
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the {spec} workload needs {', '.join(missing)}",
            hint="pip install -e '.[reference]'",
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    child = ServerProcess(spec, SERVER, ["--seed", str(seed)], state_dir / f"{spec}.log")
    return revived(child, lambda url: attach(url, seed=seed, state_dir=state_dir, clock=clock))
