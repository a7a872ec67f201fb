"""The processes of `jouletune run`: a tuner and an agent on loopback, which end with it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import typer

from agents.config import Attachment
from agents.host.http.local_http import LocalHttp
from agents.host.machine import Host
from agents.main import device_ids
from agents.revert import revert
from agents.workloads.engine.child import end_leftovers
from tuner.cli.reach import OWN
from tuner.client import Client, read_token
from tuner.core import ActuationError, ConfigError, LinkError, Setting, TuningError
from tuner.wire import DeviceView

START_S = 120.0
GRACE_S = 15.0
LOOK_S = 0.1
AGENT = "agent"
"""The agent's own folder in the state folder."""


@dataclass(frozen=True)
class ChildProcess:
    """A running child and the file of its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Return if the child runs.

        Raises:
            ConfigError: it refused its input; the message is the child's.
            TuningError: it ended otherwise; the message names its log.
        """
        code = self.process.poll()
        if code is None:
            return
        last = last_error(self.log)
        if code == 2 and last:
            raise ConfigError(last)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        cause = f": {last}" if last and code > 0 else ""
        raise TuningError(
            f"the {self.name} {how}{cause}", hint=f"see its log {self.log}; continue with --resume"
        )

    def end(self) -> None:
        """End the child and its descendants: send SIGTERM, wait `GRACE_S`, then kill the group."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass
class Children:
    """Starts children with their logs in a folder, and ends them in reverse order.

    A child `beside` them is checked, and ended by its own starter.
    """

    folder: Path
    beside: ChildProcess | None = None
    _running: list[ChildProcess] = field(default_factory=list)

    def start(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> ChildProcess:
        """Start `jouletune ARGUMENTS` in a new session; its output goes to NAME.log."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuner.cli.tied", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                start_new_session=True,
            )
        child = ChildProcess(name, process, log)
        self._running.append(child)
        return child

    def check(self) -> None:
        """Return if all children run; else raise the error of the first that ended."""
        for child in (*([self.beside] if self.beside else []), *self._running):
            child.check()

    def end(self) -> None:
        """End all children, the last started first. May be called twice."""
        while self._running:
            self._running.pop().end()


@dataclass(frozen=True)
class Stand:
    """A running tuner and agent, the agent's log, and the operator's API."""

    api: Client
    log: Path
    devices: Mapping[str, DeviceView]
    check: Callable[[], None]


@contextmanager
def stand(
    state_dir: Path,
    db: str,
    specs: Sequence[str],
    seed: int,
    foreign_share: float | None = None,
    beside: ChildProcess | None = None,
) -> Iterator[Stand]:
    """Start tuner and agent, wait until every device is registered, and end both afterwards.

    `Stand.devices` has the specs as keys. A child `beside` them is checked with them, not ended. The
    devices are restored after every outcome.

    Raises:
        ConfigError: the database, a device or a workload was refused.
        TuningError: a process ended, or did not start in time; the message names its log.
        ActuationError: a device could not be restored.
    """
    children, begun = Children(state_dir, beside), datetime.now(timezone.utc)
    port_file, token_file = state_dir / "port", state_dir / "token"
    port_file.unlink(missing_ok=True)
    for name in ("tuner", "agent"):
        (state_dir / f"{name}.log").write_bytes(b"")
    # A database URL may contain a password, so it is in the environment, not on the command line.
    environ = {**os.environ, "JOULETUNE_DB": db, "PYTHONUNBUFFERED": "1"}
    tuner = ["tuner", "serve", "--host", "127.0.0.1", "--port", "0"]
    tuner += ["--token-file", str(token_file), "--port-file", str(port_file)]
    agent = ["agent", "serve", "--token-file", str(token_file)]
    agent += ["--state-dir", str(state_dir / AGENT), "--seed", str(seed)]
    agent += [] if foreign_share is None else ["--foreign-share", str(foreign_share)]
    agent += [part for spec in specs for part in ("--device", spec)]
    try:
        log = children.start("tuner", tuner, environ).log
        await_file(port_file, children, f"the tuner did not start; see its log {log}")
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        log = children.start("agent", [*agent, "--tuner", url], environ).log
        with Client(url, read_token(token_file)) as api:
            _until(api.ready, children, f"the tuner did not answer; see its log {log}")
            ids = device_ids([Attachment.parse(spec) for spec in specs], Host.here().name)
            failing = f"the agent did not register its devices; see its log {log}"
            _until(lambda: all_there(ids, api, begun, log), children, failing)
            registered = _registered(api, begun)
            devices = {spec: registered[id] for spec, id in zip(specs, ids, strict=True)}
            yield Stand(api, log, devices, children.check)
    except LinkError:
        time.sleep(LOOK_S)  # a killed tuner closes its connections before it is gone
        children.check()
        raise
    finally:
        children.end()
        restore(state_dir / AGENT, beside)


def restore(folder: Path, beside: ChildProcess | None) -> None:
    """Restore the devices. Raises ActuationError, which names the end of a child beside it, if any."""
    try:
        if folder.is_dir():
            revert(folder, tell=False)
    except ActuationError as error:
        try:
            if beside is not None:
                beside.check()
        except TuningError as cause:
            raise ActuationError(f"{cause.message}; {error.message}", hint=cause.hint) from None
        raise


def await_file(file: Path, children: Children, failing: str) -> None:
    """Return once a child has written a file. Raises LinkError with the message `failing` on timeout."""
    _until(file.is_file, children, failing)


def last_error(log: Path) -> str:
    """Return the last error of a log, else its last line; empty for an empty log."""
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1].removeprefix("error: ").strip()


def all_there(ids: Sequence[str], api: Client, since: datetime, log: Path) -> bool:
    """Return whether all devices are registered. Raises ActuationError: one could not be opened."""
    # An agent tries again; a run does not.
    if refused := _logged(r"not_opened device=(\S+) why=['\"](.*)", log):
        raise ActuationError(
            f"the agent cannot open {refused[1]}: {refused[2]}", hint=f"the agent's log is {log}"
        )
    return set(ids) <= set(_registered(api, since))


def discarded(log: Path, study: str, cause: str) -> str:
    """Return why the agent discarded a window of a study for a cause; empty if it discarded none."""
    match = _logged(rf"window_discarded trial=\S+/{study}/\S+ why=['\"](.*{cause}.*)", log)
    return match[1] if match else ""


def _logged(record: str, log: Path) -> re.Match[str] | None:
    """Return the first record of an event that ends with its reason."""
    text = log.read_text("utf-8", "replace")
    return re.search(rf"event={record}['\"]$", text, re.MULTILINE)


def _registered(api: Client, since: datetime) -> Mapping[str, DeviceView]:
    """Return the devices that registered since a moment, by id; the database also has older ones."""
    return {v.device.id: v for v in api.devices() if v.device.seen_at >= since}


def _until(done: Callable[[], bool], children: Children, failing: str) -> None:
    """Return once `done` returns true; meanwhile check that all children run.

    Raises:
        LinkError: it took longer than `START_S`.
    """
    deadline = time.monotonic() + START_S
    while not done():
        children.check()
        if time.monotonic() > deadline:
            raise LinkError(failing)
        time.sleep(LOOK_S)


FOLDER, PORT, KNOB, ANY = "engine", "--port", "--knob", "0"
COMMAND = (
    "jouletune run --llm --knob max_num_seqs=8,16 --generate-load callers=4 -- vllm serve MODEL"
)


@dataclass(frozen=True)
class StartedEngine:
    """The proxy's process, its URL, and the words that start it again at the same port.

    `port` is the requested one, empty if any is.
    """

    proxy: ChildProcess
    url: str
    words: tuple[str, ...]
    port: str = ""

    def finished_command(self, held: Setting) -> str:
        """Return the engine's command line with the values of a held setting.

        Raises:
            DeviceLost, ActuationError: the proxy does not answer.
        """
        http = LocalHttp(self.url, "the engine's proxy", f"see {self.proxy.log}")
        names = {w.partition("=")[0] for k, w in pairwise(self.words) if k == KNOB}
        setting = {name: value for name, value in held.items() if name in names}
        try:
            words = http.call("POST", "/command", setting).json()["command"]
        finally:
            http.close()
        return shlex.join([*words, *((PORT, self.port) if self.port else ())])


def demand_engine(llm: str, engine: Sequence[str], *, resume: bool, write_config: bool) -> None:
    """Raise ConfigError unless --llm has an address or an engine's command, not both."""
    if (llm == OWN) is not bool(engine):
        raise ConfigError(
            "an engine's command after -- goes with --llm without an address", hint=COMMAND
        )
    if engine and (resume or write_config):
        raise ConfigError(
            "--resume and --write-config exclude an engine's command",
            hint="--resume starts the engine of the interrupted run; --write-config needs --llm URL",
        )


def proxy_words(engine: Sequence[str], knobs: Sequence[str]) -> tuple[str, ...]:
    """Return the words of `workload proxy` for a command: it listens at the command's port, if any."""
    command, port = list(engine), ANY
    for at, word in enumerate(engine):
        if word == PORT and at + 1 < len(engine):
            port, command = engine[at + 1], [*engine[:at], *engine[at + 2 :]]
        elif word.startswith(f"{PORT}="):
            port, command = word.partition("=")[2], [*engine[:at], *engine[at + 1 :]]
    if not command:
        return ()
    return (PORT, port, *(w for knob in knobs for w in (KNOB, knob)), "--", *command)


@contextmanager
def served(words: Sequence[str], state_dir: Path) -> Iterator[StartedEngine]:
    """Start an engine behind its proxy; afterwards end both, with every process that they leave.

    Processes that an interrupted run left are ended first; the caller holds the lock of the folder.

    Raises:
        ConfigError: the command, a flag or the port was refused.
        TuningError: the engine did not start; the message has the reason.
    """
    folder = state_dir / FOLDER
    _end_leftovers(folder)
    children = Children(state_dir)
    (state_dir / "proxy.log").write_bytes(b"")
    own = ["workload", "proxy", "--state-dir", str(folder)]
    typer.echo(f"starting {words[words.index('--') + 1]}; its log is below {folder}", err=True)
    child = children.start("proxy", [*own, *words], os.environ)
    try:
        url = _ready(child)
        again = (PORT, url.rpartition(":")[2], *words[2:])
        yield StartedEngine(child, url, again, "" if words[1] == ANY else words[1])
    finally:
        children.end()
        _end_leftovers(folder)


def _end_leftovers(folder: Path) -> None:
    """End the processes of every engine that was started with a folder."""
    for one in folder.glob("engine-*"):
        end_leftovers(one)


def _ready(proxy: ChildProcess) -> str:
    """Return the proxy's URL once its engine serves. Raises ConfigError, TuningError."""
    while True:
        ready = re.search(
            r"^ready at (\S+): ", proxy.log.read_text("utf-8", "replace"), re.MULTILINE
        )
        if ready:
            return ready[1]
        proxy.check()
        time.sleep(LOOK_S)
