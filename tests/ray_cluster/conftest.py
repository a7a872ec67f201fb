"""A Ray cluster of two CPUs on this machine, or a skip with the reason."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import kill, processes, session

ROOT = Path(__file__).parents[2]
START_S = 90.0
STOP_S = 8.0


@dataclass(frozen=True)
class Cluster:
    """The ports of the cluster's dashboard, and for clients."""

    dashboard: int
    clients: int


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: make test-ray installs it")
    # The paths of Ray's sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix="jt-ray-", dir="/tmp"))
    ports = free_ports(5)
    command = [str(Path(sys.prefix, "bin", "ray")), "start", "--head", "--block"]
    command += ["--port", str(ports[0]), "--dashboard-port", str(ports[1])]
    command += ["--metrics-export-port", str(ports[2]), "--num-cpus", "2"]
    command += ["--dashboard-agent-listen-port", str(ports[3]), "--temp-dir", str(folder)]
    command += ["--ray-client-server-port", str(ports[4])]
    command += ["--dashboard-host", "127.0.0.1", "--include-dashboard", "true"]
    command += ["--disable-usage-stats", "--object-store-memory", "100000000"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_metrics_report_interval_ms": "1000"}
    environ.pop("OMP_NUM_THREADS", None)  # set by the tests; Ray would keep it
    with (folder / "start.log").open("wb") as log:
        ray = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)
    try:
        cluster = Cluster(ports[1], ports[4])
        await_dashboard(cluster, ray, folder / "start.log")
        yield cluster
    finally:
        end(ray)
        shutil.rmtree(folder, ignore_errors=True)


def await_dashboard(cluster: Cluster, ray: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            opener.open(f"http://127.0.0.1:{cluster.dashboard}/api/version", timeout=60).close()
            return
        except OSError:
            assert ray.poll() is None and time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.3)


def end(ray: subprocess.Popen[bytes]) -> None:
    """End Ray; kill its remaining processes, which are all in its session."""
    ray.terminate()
    try:
        ray.wait(STOP_S)
    except subprocess.TimeoutExpired:
        ray.kill()
        ray.wait()
    kill(*(pid for pid in processes() if session(pid) == ray.pid))


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
