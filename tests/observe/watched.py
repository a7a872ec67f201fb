"""Programs that `observe` measures, each with a record of its own work by the kernel's accounting."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run_to_end

PROGRAM = [sys.executable, "-c", "import sys; from tuner.cli.app import main; sys.exit(main())"]
REPOSITORY = Path(__file__).parents[2]

RECORDED = """
import json, os, sys, time
left = 1_500_000
while left:
    left -= 1
print(json.dumps({"loss": 0.5}), flush=True)
ticks = float(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
began_s = ticks / os.sysconf("SC_CLK_TCK")
used = os.times()
with open(sys.argv[1], "a") as record:
    took_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    record.write(json.dumps({"cpu_ms": 1e3 * (used.user + used.system), "ms": 1e3 * took_s}) + "\\n")
os._exit(0)
"""
"""A run that records its CPU time and its duration; the kernel counts both in ticks of 10 ms."""
TICK_MS = 10.0

SERVICE = """
import json, sys, time
from fastapi import FastAPI, Request
from prometheus_client import Histogram, make_asgi_app

app = FastAPI()
app.mount("/metrics/", make_asgi_app())
TOOK = Histogram("work_seconds", "Time to work", buckets=[0.001 * 1.05**n for n in range(120)])
record = open({record!r}, "a", buffering=1)

@app.post("/work")
async def work():
    with TOOK.time():
        left = 60_000
        while left:
            left -= 1
    record.write(json.dumps({{"at": time.time(), "cpu_s": time.process_time()}}) + "\\n")
    return {{}}
"""
SERVICE_FILE = """
name = "work"
url = "http://127.0.0.1:{port}"
version = "1"
[process]
pid_file = "{pid_file}"
program = "{program}"
[latency]
metrics = "/metrics/"
histogram = "work_seconds"
[load]
callers = 1
path = "/work"
"""

WRITES = re.compile(r'^\d+\s+(\w+)\((?:AT_FDCWD, |\d+(?:<[^>]*>)?, )?"([^"]*)"(.*)$')
"""A line of strace: the call, its path and the rest."""
OPENED_TO_WRITE = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
HARDWARE = ("/sys/", "/proc/", "/dev/")
NO_DRIVER = re.compile(r"/dev/(null|tty|ptmx|zero|u?random|full|fd/\d+|(pts|shm|mqueue)/.*)")


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error."""

    mean: float
    stderr: float


def mean_of(values: Sequence[float]) -> Mean:
    return Mean(statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5)


def asked(
    folder: Path, *arguments: str, before: Sequence[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end."""
    return run_to_end(
        [*before, *PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environ},
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def observe(folder: Path, *arguments: str, before: Sequence[str] = ()) -> Any:  # noqa: ANN401  JSON
    """Return the document of `observe --json`, which must succeed."""
    done = asked(folder, "observe", *arguments, "--json", before=before)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def recorded(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def hardware_writes(trace: str) -> Iterator[str]:
    """Yield the calls of a trace that could change a file of the kernel or of a driver."""
    for line in trace.splitlines():
        found = WRITES.match(line)
        if found is None:
            continue
        call, path, rest = found.groups()
        wrote = OPENED_TO_WRITE.search(rest) if call.startswith("open") else True
        if wrote and path.startswith(HARDWARE) and not NO_DRIVER.fullmatch(path):
            yield line


def traced(folder: Path, *arguments: str) -> str:
    """Observe under strace, with all children, and return the calls that open or change a file."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = folder / "trace"
    calls = (
        "open,openat,openat2,creat,truncate,unlink,unlinkat,rename,renameat,renameat2,mknod,mknodat"
    )
    observe(folder, *arguments, before=("strace", "-f", "-qq", "-e", calls, "-o", str(trace)))
    return trace.read_text(errors="replace")
