"""The study that needs no right to write: the batch size of a load of ours, under a limit of latency.

`python -m tests.hardware.batch_study --device nvidia:0 --output FILE.json` runs `jouletune run` on the
torch classifier, then measures baseline and result in turns without the product: NVML's counter on a GPU,
the CPU time of the process in /proc elsewhere. Exit status 1: the two disagree.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import processes

CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
LIMIT = "latency_p99_ms <= 4x baseline"
SURE = 3.0
"""Standard errors of their difference by which two measurements of a saving may differ."""


@contextmanager
def served() -> Iterator[tuple[dict[str, str], int]]:
    """Yield the classifier's address and device, and its process."""
    command = [sys.executable, "-m", "tests.hardware.torch_server", "--width", "16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline()), server.pid
        finally:
            server.kill()


def study(given: argparse.Namespace, url: str, state_dir: Path) -> dict[str, Any]:
    """Return the result of the product's own loop. Raises CalledProcessError."""
    options = ["--device", given.device, "--workload", url, "--policy", "polythrottle", "--json"]
    options += [
        "--constraint",
        given.constraint,
        "--trials",
        str(given.trials),
        "--window",
        f"{given.window:g}",
    ]
    options += ["--foreign-share", f"{given.foreign_share:g}"]
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE, "run", *options, "--state-dir", str(state_dir)],
        env={**os.environ, "JOULETUNE_ACTUATOR": str(state_dir / "none")},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def counter(device: str, pid: int) -> Callable[[], float]:
    """Return a reader of the joules of a GPU, else of the process's CPU seconds."""
    if not device.startswith("nvidia:"):
        return lambda: processes.cpu_s(pid)
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2]))
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000.0


def in_turns(
    url: str,
    settings: Sequence[Mapping[str, Any]],
    rounds: int,
    seconds: float,
    read: Callable[[], float],
) -> list[list[float]]:
    """Return the cost per item of each setting, measured in turns."""
    costs: list[list[float]] = [[] for _ in settings]
    for _ in range(rounds):
        for own, setting in zip(costs, settings, strict=True):
            ask(url, "PUT", "", setting)
            before, spent = ask(url, "GET", "/stats")["items"], read()
            time.sleep(seconds)
            after, used = ask(url, "GET", "/stats")["items"], read() - spent
            own.append(used / (after - before))
    return costs


def ask(url: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a response of the workload contract."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    with urllib.request.urlopen(request, timeout=60.0) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def saving(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the share saved and its standard error, from paired rounds."""
    shares = [1.0 - b / a for a, b in zip(baseline, other, strict=True)]
    return statistics.fmean(shares), statistics.stdev(shares) / math.sqrt(len(shares))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both measurements; write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--constraint", default=LIMIT)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--window", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--foreign-share", type=float, default=0.15)
    parser.add_argument("--output", type=Path, default=Path("batch-study.json"))
    given = parser.parse_args(arguments)
    state_dir = given.output.parent / "batch-study"
    with served() as (server, pid):
        found = study(given, server["url"], state_dir)
        settings = found["baseline"]["setting"], (found["best"] or found["baseline"])["setting"]
        costs = in_turns(
            server["url"], settings, given.rounds, given.window, counter(given.device, pid)
        )
    own, error = saving(*costs)
    report = {"on": server["on"], "settings": settings, "in_turns": [own, error], "study": found}
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    product = found["saving"] or {"mean": 0.0, "stderr": 0.0}
    apart = abs(product["mean"] - own)
    agrees = apart <= SURE * math.hypot(product["stderr"], error) + 0.01
    print(
        f"{settings[0]} -> {settings[1]} on {server['on']}: the study saves {product['mean']:.1%} ± "
        f"{product['stderr']:.1%}, in turns {own:.1%} ± {error:.1%}: {'agrees' if agrees else 'DISAGREES'}"
    )
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
