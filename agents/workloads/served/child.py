"""The reference workload as a process of the agent's: started, awaited, started again, ended with it."""

from __future__ import annotations

import importlib.util
import json
import logging
import select
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from agents.target.side import LiveSignal, Side, SignalSample
from agents.workloads.served.adapter import RestartableKnobs, attach
from agents.workloads.served.signals import AwaitedRequests
from tuner.core import Clock, DeviceLost, InvalidInput, Setting, TuningError

log = logging.getLogger(__name__)

START_S = 120.0
END_S = 10.0
REFUSED = 2
"""The server's exit status where it cannot be as it was asked to be."""
SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


class ServerProcess:
    """The server's process. Once it has ended unasked it is started again, on the same port.

    The server also ends when this process does, however that happens.
    """

    def __init__(self, spec: str, seed: int, log_file: Path) -> None:
        log_file.write_bytes(b"")
        self._spec = spec
        self._lock = threading.Lock()
        self._ended = False
        self._log_file = log_file
        model = spec.partition(":")[2]
        self._options = ["--seed", str(seed), *(["--model", model] if model else [])]
        self._process = self._start(0)
        self.url = self._ready_url()

    def revive(self) -> None:
        """Start the server again where it has ended; quietly nothing while it runs.

        Raises:
            DeviceLost: it does not start; the message has the last line of its log.
        """
        with self._lock:
            status = self._process.poll()
            if status is None or self._ended:
                return
            log.error("event=workload_ended spec=%s status=%d", self._spec, status)
            self._stop()
            self._process = self._start(urlsplit(self.url).port or 0)
            self._ready_url()

    def end(self) -> None:
        """End the server for good, by force where it takes too long."""
        with self._lock:
            self._ended = True
            self._stop()

    def _stop(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.terminate()  # Still starting, it would notice the closed input only later.
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        with self._log_file.open("ab") as errors:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", SERVER, "--port", str(port), "--while-stdin-open"),
                    *self._options,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def _ready_url(self) -> str:
        """Return where the server is once it is ready; end it where it does not come that far."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if readable else b""
        try:
            return str(json.loads(line)["url"])
        except (ValueError, LookupError):
            self._stop()
            said = self._log_file.read_text(errors="replace").strip().splitlines()
            kind = InvalidInput if self._process.returncode == REFUSED else DeviceLost
            raise kind(
                f"the {self._spec} server did not start: {(said or ['it said nothing'])[-1]}",
                hint=f"its log is {self._log_file}",
            ) from None


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
    child = ServerProcess(spec, seed, state_dir / f"{spec.replace(':', '-')}.log")
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
