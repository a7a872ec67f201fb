"""Several workers of a real uvicorn or Gunicorn are refused by name, or measured together."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.target.rehearsal import rehearse
from agents.workloads.http.attach import attach

ROOT = Path(__file__).parents[5]
APP = "tests.unit.agents.workloads.http.workers_app"
SERVERS = {
    "uvicorn": ("uvicorn", f"{APP}:app", "--log-level", "error", "--port"),
    **{
        kind: ("gunicorn", f"{APP}:wsgi", "--log-level", "error", "-k", *kind.split(), "-b")
        for kind in ("sync", "gthread --threads 4")
    },
}
TIMES = int(os.environ.get("JOULETUNE_WORKERS_TIMES", "2"))
PACE_S, SENDERS = 0.005, 4
FILE = """
name = "prefork"
url = "http://127.0.0.1:{port}"
version = "1"
cpu_time = false
{rest}
[[knob]]
name = "batch"
values = [1]
default = 1
set = {{ method = "POST", path = "/config", json = {{ batch = "{{value}}" }} }}
read = {{ path = "/config", json = "batch" }}
"""
LATENCY = 'always_busy = true\n[latency]\nhistogram = "http_request_seconds"\n'
LOAD = '[load]\npath = "/work"\ncallers = 4\n[items]\ncounter = "http_requests_total"\n'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(server: str, workers: int, folder: Path | None) -> Iterator[int]:
    """Run a server and yield its port."""
    module, *words = SERVERS[server]
    pytest.importorskip(module)
    port = free_port()
    together = {} if folder is None else {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    address = f"{port}" if module == "uvicorn" else f"127.0.0.1:{port}"
    command = [sys.executable, "-m", module, *words, address, "--workers", str(workers)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **together}) as running:
        try:
            until = time.monotonic() + 60.0
            while time.monotonic() < until:
                try:
                    answer(port, "/config")
                    break
                except OSError:
                    time.sleep(0.1)
            yield port
        finally:
            running.terminate()
            running.wait(30.0)


def answer(port: int, path: str) -> None:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    try:
        line.request("GET", path)
        line.getresponse().read()
    finally:
        line.close()


@contextmanager
def traffic(port: int) -> Iterator[Callable[[], int]]:
    """Send requests over persistent connections; yield a function that counts the answers."""
    ended, done = threading.Event(), [0] * SENDERS

    def send(n: int) -> None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
        while not ended.wait(PACE_S):
            line.request("GET", "/work")
            line.getresponse().read()
            done[n] += 1
        line.close()

    senders = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        yield lambda: sum(done)
    finally:
        ended.set()
        for sender in senders:
            sender.join()


def checked(port: int, rest: str, tmp_path: Path) -> tuple[bool, str]:
    """Return the result of `workload check` for the meter, and its text."""
    file = tmp_path / "service.toml"
    file.write_text(FILE.format(port=port, rest=rest))
    side = attach(f"service:{file}", seed=0, state_dir=tmp_path, clock=HostClock())
    try:
        symptoms = {one.about: one for one in rehearse(side, HostClock(), 1.0)}
    finally:
        side.close()
    meter = symptoms["the meter"]
    return bool(meter.well), f"{meter.seen}; {meter.cure}"


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("rest", [LATENCY, LOAD], ids=["production", "our load"])
def test_workers_that_count_apart_are_refused_by_name(
    server: str, rest: str, tmp_path: Path
) -> None:
    """Each of the four workers has its own counters; a connection reaches only one of them."""
    with served(server, 4, None) as port, ExitStack() as stack:
        if rest is LATENCY:
            stack.enter_context(traffic(port))
        time.sleep(1.0)
        for _ in range(TIMES):
            right, words = checked(port, rest, tmp_path)
            assert not right, words
            assert "PROMETHEUS_MULTIPROC_DIR" in words


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("workers", "together"), [(1, False), (4, True)])
def test_interacting_metrics_are_measured_together(
    server: str, workers: int, together: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "counters"
    folder.mkdir()
    with served(server, workers, folder if together else None) as port, traffic(port):
        time.sleep(1.0)
        for _ in range(TIMES):
            right, words = checked(port, LATENCY, tmp_path)
            assert right, words
