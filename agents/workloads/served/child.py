"""The reference workload as a process of the agent's: started again where it ended, and ended with it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from agents.host.server_process import ServerProcess
from agents.target.side import LiveSignal, Side, SignalSample
from agents.workloads.served.adapter import RestartableKnobs, attach
from agents.workloads.served.signals import AwaitedRequests
from tuner.core import Clock, InvalidInput, Setting, TuningError

SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


class RevivingActuator:
    """Sets the server's knobs, and starts it again first where it has ended; closing ends it."""

    def __init__(self, child: ServerProcess, actuator: RestartableKnobs) -> None:
        self._child = child
        self._actuator = actuator

    def read(self) -> Setting:
        """Return what is in force. Raises ActuationError, DeviceLost."""
        self._child.revive()
        return self._actuator.read()

    def apply(self, setting: Setting) -> None:
        """Put a setting in force. Raises UnknownKnob, OutOfRange, ActuationError, DeviceLost."""
        self._child.revive()
        self._actuator.apply(setting)

    def incarnation(self) -> str:
        """Return another word after each start. Raises DeviceLost, WorkloadChanged."""
        self._child.revive()
        return self._actuator.incarnation()

    def close(self) -> None:
        """End the connection, and the server."""
        self._actuator.close()
        self._child.end()


class RevivingSignal:
    """A signal of the server, which is started again first where it has ended."""

    def __init__(self, child: ServerProcess, live: LiveSignal) -> None:
        self.signal = live.signal
        self._child = child
        self._live = live

    def read(self) -> SignalSample:
        """Return it as it is now. Raises DeviceLost, WorkloadChanged."""
        self._child.revive()
        return self._live.read()


class RevivingRequests(RevivingSignal):
    """The requests in the server, which can be waited for."""

    def __init__(self, child: ServerProcess, live: AwaitedRequests) -> None:
        super().__init__(child, live)
        self._awaited = live

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        """Return them once there are so many, or after so long. Raises as `read`."""
        self._child.revive()
        return self._awaited.wait_above(value, seconds)


def start_reference(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Start the reference server, await its warm model, and attach to it; `close` ends it.

    Where the server ends unasked, setting or reading it starts it again, at its default setting.

    Raises:
        InvalidInput: a package that the server needs is not installed, or it has no such model, or the
            model does not fit in memory.
        DeviceLost: it does not start; the message has the last line of its log.
    """
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the {spec} workload needs {', '.join(missing)}",
            hint="pip install -e '.[reference]'",
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    model = spec.partition(":")[2]
    options = ["--seed", str(seed), *(["--model", model] if model else [])]
    child = ServerProcess(spec, SERVER, options, state_dir / f"{spec.replace(':', '-')}.log")
    try:
        attached = attach(child.url, seed=seed, state_dir=state_dir, clock=clock)
    except TuningError:
        child.end()
        raise
    actuator = attached.actuator
    assert isinstance(actuator, RestartableKnobs)
    return replace(
        attached,
        actuator=RevivingActuator(child, actuator),
        signals=tuple(_reviving(child, live) for live in attached.signals),
    )


def _reviving(child: ServerProcess, live: LiveSignal) -> LiveSignal:
    if isinstance(live, AwaitedRequests):
        return RevivingRequests(child, live)
    return RevivingSignal(child, live)
