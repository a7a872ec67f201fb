"""Try N cases, two of three on files, and print the crashes as one JSON; exit with 1 if there are any."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml

from tests.fuzz.crashes import Crashes
from tests.fuzz.gpus import CALLS, CODES, Gpus
from tests.fuzz.hosts import Hosts
from tests.nvml.fake import build, compiler

NO_COMPILER = "no C compiler here to build the fake NVML with"
HASTE = {
    "agents.devices.cpu.diagnosis.LOAD_S": 0.0,
    "agents.devices.jetson.knobs.LATE_S": 0.0,
}
"""Waits that are useless on files that do not change."""
BINDING: dict[str, Any] = {
    "nvmlLib": None,
    "_nvmlLib_refcount": 0,
    "_nvmlGetFunctionPointer_cache": {},
}


def fuzz(cases: int, seed: int, folder: Path) -> dict[str, Any]:
    """Return the results of this many cases, equal for equal seeds."""
    rng = random.Random(seed)
    hosts, gpus = Crashes(), Crashes()
    sources = [Hosts(folder, hosts).cases(rng)] * 2
    if compiler() is not None:
        sources.append(Gpus(build(folder), folder, gpus).cases(rng))
    for number in range(cases):
        next(sources[number % len(sources)])()
    crashes = [*hosts.found, *gpus.found]
    return {
        "seed": seed,
        "cases": hosts.cases + gpus.cases,
        "crashes": len(crashes),
        "hosts": {"cases": hosts.cases, "crashes": len(hosts.found)},
        "nvml": {
            "cases": gpus.cases,
            "crashes": len(gpus.found),
            "calls": len(CALLS),
            "codes": len(CODES),
            "skipped": "" if compiler() is not None else NO_COMPILER,
        },
        "crashed": crashes,
    }


@contextmanager
def surroundings() -> Iterator[Path]:
    """Yield a folder, in memory if possible; no actuator of this host answers meanwhile."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory))
        nobody = {"JOULETUNE_ACTUATOR": str(Path(folder) / "nobody.sock")}
        stack.enter_context(mock.patch.dict(os.environ, nobody))
        for (
            name,
            value,
        ) in BINDING.items():  # it has loaded another library meanwhile
            stack.enter_context(mock.patch.object(pynvml, name, value))
        for constant, value in HASTE.items():
            stack.enter_context(mock.patch(constant, value))
        yield Path(folder)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("cases", type=int, nargs="?", default=5000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    options = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    with surroundings() as folder:
        result = fuzz(options.cases, options.seed, folder)
    sys.stdout.write(f"{json.dumps(result, indent=1)}\n")
    return 1 if result["crashes"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
