"""Opens workloads: those of this package, and plug-ins registered as `jouletune.workloads`."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from agents.target.side import Side
from tuner import installed
from tuner.core import Clock, InvalidInput

GROUP = "jouletune.workloads"
WORKLOADS = MappingProxyType(
    {
        "command": "agents.workloads.command:attach",
        "http": "agents.workloads.served:attach",
        "llama_cpp": "agents.workloads.engine:attach",
        "reference": "agents.workloads.served:start_reference",
        "service": "agents.workloads.http:attach",
        "simulated": "agents.workloads.simulated:open_simulated_inference",
    }
)
"""Kind of workload to the function that opens one; imported only when chosen."""

REMOVED = MappingProxyType(
    {
        "ray": (
            "the adapter of Ray Serve",
            "write a service file that sets Ray's config over HTTP: docs/engines.md#ray-serve",
        ),
        "text": (
            "the text engine",
            "start `jouletune workload proxy` in front of a llama-server, and give its address: "
            "llama_cpp:http://127.0.0.1:8090",
        ),
    }
)
"""Removed kinds, each with its name and its replacement."""


def open_workload(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Open `reference` (started here, ended by `close`), or a workload that runs already.

    Running ones are `http://127.0.0.1:PORT`, or any service described by a file on this host,
    `service:/PATH/FILE.toml`. `command:/PATH/FILE.toml` is a program that runs to an end. `seed`
    fixes the reference model and the load's arrivals, `state_dir` is the folder for a started server's
    log, `clock` the clock that times requests.

    Raises:
        InvalidInput: the workload does not exist, or a package that it needs is not installed or cannot
            be imported.
        DeviceLost: it does not answer.
        ActuationError: its answers do not follow the contract.
    """
    kind = spec.removesuffix(":").partition(":")[0]
    opener = None if spec == "http" else installed.load(GROUP, WORKLOADS, kind)
    if opener is None and kind in REMOVED:
        what, instead = REMOVED[kind]
        raise InvalidInput(f"there is no workload {spec!r}: {what} was removed", hint=instead)
    if opener is None:
        others = installed.names(GROUP, WORKLOADS)[len(WORKLOADS) :]
        more = f"; other packages offer: {', '.join(others)}" if others else ""
        raise InvalidInput(
            f"there is no workload {spec!r}",
            hint="choose reference, http://127.0.0.1:PORT (a running server), service:/PATH/FILE.toml "
            "(a service that the file describes), command:/PATH/FILE.toml "
            f"(a program that ends by itself), or llama_cpp:http://127.0.0.1:PORT{more}",
        )
    side: Side = opener(spec, seed=seed, state_dir=state_dir, clock=clock)
    return side
