"""The reference workload as a process of the agent's: started again where it ended, and ended with it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from agents.host.server_process import ServerProcess
from agents.target.reviving import revived
from agents.target.side import Side
from agents.workloads.served.adapter import attach
from tuner.core import Clock, InvalidInput

SERVER = "agents.workloads.reference.serve"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")


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
    return revived(child, lambda url: attach(url, seed=seed, state_dir=state_dir, clock=clock))
