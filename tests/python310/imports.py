"""`python3.10 -m tests.python310.imports` imports all modules of agent and actuator, and `jouletune`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator

ROOMS = ("agents", "tuner.core", "policies")
MODULES = ("tuner.compat", "tuner.errors", "tuner.files", "tuner.guard", "tuner.toml", "tuner.wire")
APART = ("agents.federated", "agents.workloads.reference")
"""Modules that run as programs beside a tuner, with further packages."""
TUNERS = ("numpy", "scipy", "torch", "botorch", "starlette", "uvicorn", "httptools", "jtop", "ray")
"""Packages of extras: an agent has no module that needs one."""


def modules() -> Iterator[str]:
    """Yield the names of all modules that must be importable."""
    yield from MODULES
    for room in ROOMS:
        package = importlib.import_module(room)
        yield room
        for module in pkgutil.walk_packages(package.__path__, f"{room}.", onerror=lambda _: None):
            if not module.name.startswith(APART) and not module.name.endswith("__main__"):
                yield module.name
    yield "tuner.cli.app"


def main() -> int:
    """Import everything; print the number of modules, and the failures."""
    broken, count = 0, 0
    for name in modules():
        try:
            importlib.import_module(name)
            count += 1
        except ModuleNotFoundError as error:
            if error.name not in TUNERS:
                broken += 1
                print(f"{name}: {error}")
        except ImportError as error:
            broken += 1
            print(f"{name}: {error}")
    print(f"Python {sys.version.split()[0]}: {count} modules, {broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
