"""The study that needs no right to write: the batch size of a load of ours, under a limit of latency.

The product's own loop tunes it, writes its evidence, and verify.py checks that. Then baseline and result
are measured in turns without the product: by NVML's counter on a GPU, by the process's CPU time elsewhere.
The loop runs without torch and SciPy: it follows the policy `sobol`, and the kit has a stand-in for the
one class that this takes from SciPy.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
POLICY = "sobol"
LIMIT = "latency_p50_ms <= 2x baseline"
CALLERS, ROUNDS = 4, 4
SURE, BIAS = 3.0, 0.02
"""Two savings agree within this many standard errors of their difference, and this share."""
RUN_S, STEP_S, WARM_S = 150.0, 0.3, 0.5
ARCHIVE = "evidence.zip"


def study(
    device: str, command: Sequence[str], folder: Path, window_s: float, trials: int, foreign: float
) -> dict[str, Any]:
    """Return the saving by the product and in turns, and the check of the evidence in `folder`.

    `command` starts the server.

    Raises:
        RuntimeError, TimeoutExpired: the product's run failed.
    """
    if find_spec("sqlalchemy") is None:
        return {"not_run": "the tuner needs Python 3.11 and the kit's wheels for it"}
    with _served(command) as server:
        if "url" not in server:
            return {"not_run": f"no load: {server.get('why', 'its server did not start')}"}
        options = ["--device", device, "--workload", server["url"], "--policy", POLICY, "--json"]
        options += ["--constraint", LIMIT, "--trials", f"{trials}"]
        options += ["--window", f"{window_s:g}", "--foreign-share", f"{foreign:g}"]
        run = json.loads(_console("run", *options, "--state-dir", f"{folder}/study"))
        best = run["best"] or run["baseline"]
        settings = [run["baseline"]["setting"], best["setting"]]
        own = in_turns(server["url"], settings, ROUNDS, window_s, _counter(device))
    product = run["saving"] or {"mean": 0.0, "stderr": 0.0}
    mean, error = saving(*own)
    apart = abs(product["mean"] - mean)
    return {
        "settings": settings,
        "study_saves": [product["mean"], product["stderr"]],
        "in_turns_saves": [mean, error],
        "agrees": apart <= SURE * math.hypot(product["stderr"], error) + BIAS,
        "why": run["why"],
        "evidence": evidence(run["study"]["id"], folder),
    }


def evidence(study_id: str, folder: Path) -> dict[str, Any]:
    """Write the study's archive into the folder, and return what its checks print."""
    file, database = folder / ARCHIVE, f"sqlite:///{folder.absolute()}/study/jouletune.sqlite"
    _console("evidence", study_id, "-o", str(file), "--db", database)
    shown = json.loads(_console("verify", str(file), "--json", fails=True))
    return {name: shown[name] for name in ("contradictions", "refused")} | {
        "figures": len(shown["figures"]) if isinstance(shown["figures"], list) else shown["figures"]
    }


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
            _ask(url, "PUT", "/knobs", setting)
            with _called(url):
                time.sleep(WARM_S)
                spent, before = read(), _ask(url, "GET", "/stats")["items"]
                time.sleep(seconds)
                used, after = read() - spent, _ask(url, "GET", "/stats")["items"]
            own.append(used / max(1, after - before))
    return costs


def saving(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the share saved and its standard error, from paired rounds."""
    shares = [1.0 - b / a for a, b in zip(baseline, other, strict=True)]
    return statistics.fmean(shares), statistics.stdev(shares) / math.sqrt(len(shares))


@contextmanager
def _served(command: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the first line of the server, which ends afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline() or "{}")
        finally:
            server.kill()


@contextmanager
def _called(url: str) -> Iterator[None]:
    """Keep the server busy with as many callers as the product's own load has."""
    over = threading.Event()

    def call() -> None:
        line = HTTPConnection(url.removeprefix("http://"), timeout=60.0)
        while not over.is_set():
            line.request("POST", "/infer", b"{}")
            line.getresponse().read()
        line.close()

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        yield
    finally:
        over.set()
        for caller in callers:
            caller.join()


def _console(*arguments: str, fails: bool = False) -> str:
    """Return the output of a command of the product. Raises RuntimeError with its end."""
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE, *arguments], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "JOULETUNE_ACTUATOR": "/nonexistent"}, check=False, timeout=RUN_S,
    )  # fmt: skip
    if done.returncode and not fails:
        raise RuntimeError(f"`jouletune {arguments[0]}`: {done.stdout[-600:]}")
    return done.stdout


def _counter(device: str) -> Callable[[], float]:
    """Return a reader of the joules of a GPU, at a step of its counter."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2]))

    def at_step() -> float:
        before, until = (
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
            time.monotonic() + STEP_S,
        )
        while (now := pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) == before:
            if time.monotonic() > until:
                break
            time.sleep(0.002)
        return float(now) / 1000.0

    return at_step


def _ask(url: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a response of the workload contract."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    with urllib.request.urlopen(request, timeout=60.0) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
