"""The reference workload as a process of the agent's: started, awaited, ended with it."""

from __future__ import annotations

import importlib.util
import json
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from agents.attached import Attached
from agents.workloads.served.adapter import attach
from tuner.core import Clock, DeviceLost, InvalidInput, TuningError

START_S = 120.0
END_S = 10.0
SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


def start_reference(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Attached:
    """Start the reference server, await its warm model, and attach to it; `close` ends it.

    The server also ends when this process does, however that happens.

    Raises:
        InvalidInput: a package that the server needs is not installed.
        DeviceLost: it does not start; the message has the last line of its log.
    """
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the {spec} workload needs {', '.join(missing)}",
            hint="pip install -e '.[reference]'",
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    log = state_dir / f"{spec}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", SERVER, "--seed", str(seed), "--while-stdin-open"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        attached = attach(_ready_url(process, log), seed=seed, state_dir=state_dir, clock=clock)
    except TuningError:
        _end(process)
        raise

    def close() -> None:
        attached.close()
        _end(process)

    return replace(attached, close=close)


def _ready_url(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if readable else b""
    try:
        return str(json.loads(line)["url"])
    except (ValueError, LookupError):
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise DeviceLost(
            f"the reference server did not start: {last}", hint=f"its log is {log}"
        ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server, by force where it takes too long."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.terminate()  # Still starting, it would notice the closed input only later.
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
