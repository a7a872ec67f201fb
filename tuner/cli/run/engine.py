"""An engine that `jouletune run --llm -- vllm serve …` starts: behind its proxy, as a child of the run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from agents.workloads.engine.child import end_leftovers
from tuner.cli.reach import OWN
from tuner.cli.run.processes import LOOK_S, ChildProcess, Children
from tuner.core import ConfigError

FOLDER, PORT = "engine", "--port"
COMMAND = (
    "jouletune run --llm --knob max_num_seqs=8,16 --generate-load callers=4 -- vllm serve MODEL"
)


@dataclass(frozen=True)
class StartedEngine:
    """The proxy's process, its URL, and the words that start it again at the same port."""

    proxy: ChildProcess
    url: str
    words: tuple[str, ...]


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
    command, port = list(engine), "0"
    for at, word in enumerate(engine):
        if word == PORT and at + 1 < len(engine):
            port, command = engine[at + 1], [*engine[:at], *engine[at + 2 :]]
        elif word.startswith(f"{PORT}="):
            port, command = word.partition("=")[2], [*engine[:at], *engine[at + 1 :]]
    if not command:
        return ()
    return (PORT, port, *(w for knob in knobs for w in ("--knob", knob)), "--", *command)


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
        yield StartedEngine(child, url, (PORT, url.rpartition(":")[2], *words[2:]))
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
