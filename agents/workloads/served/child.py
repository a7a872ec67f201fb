"""The reference workload as a child process of the agent: restarted if it ends, and ended with it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from agents.host.processes.server_process import ServerProcess
from agents.target.side import Side
from agents.workloads.served.adapter import attach
from tuner.core import Clock, InvalidInput, TuningError

SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


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
    try:
        return attach(
            child.url,
            seed=seed,
            state_dir=state_dir,
            clock=clock,
            revive=child.revive,
            end=child.end,
        )
    except TuningError:
        child.end()
        raise
