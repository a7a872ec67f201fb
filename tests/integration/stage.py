"""Real processes for tests: a tuner, an agent, a toy workload, and a wire that can be cut."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.processes import reserved_port, until

JOULETUNE = [sys.executable, "-c", "import sys; from tuner.cli.app import main; sys.exit(main())"]
DEADLINE_S = 60.0


@dataclass
class Stage:
    """Starts and kills processes in a folder; everything ends with the test."""

    folder: Path
    tuner_port: int = field(default_factory=reserved_port)
    agent_port: int | None = None
    """The port at which the agent reaches the tuner: the tuner's own, or a wire's."""
    agent_token_file: Path | None = None
    """The file of the token with which the agent enrols: the tuner's own, or another."""
    toml: str = "lease_s = 3.0\n"
    agent_toml: str = ""
    """Further lines of agent.toml, before the agent's device."""
    tuner: list[str] = field(default_factory=lambda: JOULETUNE)
    """The command of the tuner's process: the program, or a modified one."""
    tls: ssl.SSLContext | None = None
    """The context that checks the tuner's certificate, if it has one."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def token_file(self) -> Path:
        return self.folder / "token"

    @property
    def db(self) -> str:
        return f"sqlite:///{self.folder / 'jouletune.sqlite'}"

    def spawn(self, name: str, command: list[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def start_tuner(self) -> None:
        config = self.folder / "tuner.toml"
        config.write_text(self.toml)
        options = ["--config", str(config), "--db", self.db, "--port", str(self.tuner_port)]
        options += ["--token-file", str(self.token_file)]
        self.spawn("tuner", [*self.tuner, "tuner", "serve", *options])
        try:
            until(self.ready, "the tuner does not answer")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log('tuner')}") from None

    def ready(self) -> bool:
        with suppress(httpx2.TransportError):
            url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.tuner_port}/v1/ready"
            return httpx2.get(url, verify=self.tls or True).status_code == 200
        return False

    def start_toy(self, port: int = 0, module: str = "tests.integration.toy") -> int:
        """Start a workload that prints its port, and return that."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(port)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes[module.rpartition(".")[2]] = process
        assert process.stdout is not None
        return int(process.stdout.readline())

    def start_agent(self, device: str, workload: str = "", own: str = "") -> None:
        """Start an agent with a fake /proc, in which no other process is busy.

        `own` has further lines of the device's table.
        """
        root = self.folder / "root"
        (root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (root / "proc/stat").write_text("cpu  1 0 1 100 0 0 0 0 0 0\ncpu0 1 0 1 100 0 0 0 0 0 0\n")
        (root / "proc/cpuinfo").write_text("model name : Test CPU\n")
        (root / "proc/sys/kernel/osrelease").write_text("1.0\n")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        (root / "proc/sys/kernel/random/boot_id").write_text(boot)
        config = self.folder / "agent.toml"
        config.write_text(
            f'tuner = "http://127.0.0.1:{self.agent_port or self.tuner_port}"\n'
            f'token_file = "{self.agent_token_file or self.token_file}"\n'
            f'state_dir = "{self.folder / "agent"}"\n'
            f'root = "{root}"\n{self.agent_toml}[[device]]\nspec = "{device}"\n'
            f'workload = "{workload}"\n{own}'
        )
        self.spawn("agent", [*JOULETUNE, "agent", "serve", "--config", str(config)])

    def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process group of a started process."""
        os.killpg(self.processes[name].pid, number)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-2000:]

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        token = self.token_file.read_text().strip()
        answer = httpx2.request(
            method,
            f"http://127.0.0.1:{self.tuner_port}/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=30.0,
        )
        assert answer.status_code < 400, answer.text
        return answer.json()

    def device(self) -> str:
        """Return the id of the only device, once it is registered."""
        until(lambda: bool(self.call("GET", "/devices")), lambda: f"no device: {self.log('agent')}")
        return str(self.call("GET", "/devices")[0]["device"]["id"])

    def create(self, **draft: object) -> str:
        body = {"devices": [self.device()], "policy": "sobol", "constraints": [], **draft}
        return str(self.call("POST", "/studies", body)["id"])

    def phase(self, study: str) -> str:
        return str(self.call("GET", f"/studies/{study}")["phase"])

    def trials(self, study: str) -> list[dict[str, Any]]:
        return list(self.call("GET", f"/studies/{study}/trials"))

    def await_phase(self, study: str, phase: str, deadline_s: float = DEADLINE_S) -> None:
        def there() -> bool:
            with suppress(httpx2.TransportError):
                return self.phase(study) == phase
            return False

        try:
            until(there, f"the study does not come to {phase}", deadline_s)
        except AssertionError as error:
            logs = "".join(f"\n--- {name}: {self.log(name)}" for name in ("tuner", "agent"))
            raise AssertionError(f"{error}{logs}") from None


@contextmanager
def stage(folder: Path, toml: str = "lease_s = 3.0\n") -> Iterator[Stage]:
    site = Stage(folder, toml=toml)
    try:
        yield site
    finally:
        for name in list(site.processes):
            site.kill(name)


QUICK: dict[str, Any] = {
    "objective": "latency_mean_ms",
    "constraints": ["latency_mean_ms <= 2x baseline"],
    "terms": {"trials": 3, "window_s": 0.6, "max_window_s": 2.0},
}
"""The draft of a study of the toy that takes seconds."""


def start(played: Stage) -> int:
    """Start tuner, toy and agent; return the toy's port."""
    played.start_tuner()
    toy = played.start_toy()
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    return toy


def batch_size(toy: int) -> int:
    return int(httpx2.get(f"http://127.0.0.1:{toy}/knobs").json()["setting"]["batch_size"])


class Wire:
    """A TCP wire to a port, which can be cut: connections break and new ones are refused.

    With several ports it balances: each new connection goes to the next port that accepts it. When
    hushed, existing connections stay open but pass nothing, not even the close of one end; new ones
    work as usual.
    """

    def __init__(self, *targets: int) -> None:
        self._targets = list(targets)
        self._pairs: list[socket.socket] = []
        self._open = threading.Event()
        self._open.set()
        self._hushed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()
        for end in self._pairs:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._pairs.clear()

    def hush(self) -> None:
        self._hushed.set()
        self._hushed = threading.Event()

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._open.is_set():
                near.close()
                continue
            far = self._far()
            if far is None:
                near.close()
                continue
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                pumped = (source, sink, self._hushed)
                threading.Thread(target=_pump, args=pumped, daemon=True).start()

    def _far(self) -> socket.socket | None:
        for _ in self._targets:
            self._targets.append(self._targets.pop(0))
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", self._targets[-1]))
        return None


def _pump(source: socket.socket, sink: socket.socket, hushed: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not hushed.is_set():
                sink.sendall(data)
    if hushed.is_set():
        return
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
