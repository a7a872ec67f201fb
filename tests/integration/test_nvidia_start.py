"""The actuator over GPUs that are slow to initialise, lost, or not present yet, in separate processes.

The 3 s per GPU times 8 (persistence mode off) are scaled down, with the deadline of a call.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.actuator_client.client import open_remote
from agents.actuator_client.line import ActuatorClient
from agents.host.machine import HostClock
from tests.actuation import answers
from tests.nvml.fake import A40, A100, FakeNvml
from tests.nvml.fixtures import library

__all__ = ["library"]

GPUS, INIT_S, DEADLINE_S = 8, 0.2, 0.3
LONGEST_S = 60.0
ROOT = Path(__file__).parents[2]


@dataclass
class Host:
    """Fake GPUs in real time, and the actuators started on them."""

    nvml: FakeNvml
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket, config = self.folder / "socket", self.folder / "actuator.toml"
        self.config = config
        config.write_text(
            f'socket = "{self.socket}"\nstate_dir = "{self.folder / "state"}"\n'
            f'deadline_s = {DEADLINE_S}\n[[device]]\nmatch = "GPU-*"\n[device.grant]\n'
            '"gpu.clock_mhz" = { min = 210, max = 1410 }\n'
        )

    def start(self, verb: str) -> subprocess.Popen[bytes]:
        argument = self.config if verb == "serve" else self.folder / "state"
        environ = {**os.environ, **self.nvml.environment(), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "agents.actuator.main", verb, str(argument)]
        self.running.append(subprocess.Popen(command, env=environ))
        return self.running[-1]

    def serve(self) -> subprocess.Popen[bytes]:
        process = self.start("serve")
        self.until(lambda: answers(self.socket))
        return process

    def until(self, done: Any) -> None:  # noqa: ANN401
        deadline = time.monotonic() + LONGEST_S
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def told(self) -> Mapping[str, Any]:
        with closing(ActuatorClient(self.socket)) as line:
            return line.ask("capabilities")

    def uuids(self) -> list[str]:
        return [about["uuid"] for about in self.told()["devices"]]


@pytest.fixture
def host(library: Path, tmp_path: Path) -> Iterator[Host]:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    host = Host(nvml, tmp_path)
    try:
        yield host
    finally:
        for process in host.running:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_eight_gpus_that_are_slow_to_initialise_are_served_and_put_back(host: Host) -> None:
    # 1 to 3 s per GPU without persistence mode: in total longer than the deadlines of several calls.
    host.nvml.set("gpus", float(GPUS))
    for gpu in range(GPUS):
        host.nvml.set("init_s", INIT_S, gpu=gpu)
    serving = host.serve()
    assert len(host.uuids()) == GPUS
    with closing(open_remote(host.socket, A100, HostClock())) as knobs:
        knobs.apply({"gpu.clock_mhz": 1005})
        assert host.nvml.get("lock_max") == 1005
        serving.send_signal(signal.SIGKILL)
        serving.wait()
    assert host.nvml.get("lock_max") == 1005
    assert host.start("restore").wait(LONGEST_S) == 0
    assert host.nvml.get("lock_max") == 0


def test_a_driver_that_comes_after_the_actuator_is_found(host: Host) -> None:
    host.nvml.set("unloaded", 1.0)
    host.serve()
    assert host.uuids() == []
    assert "does not answer" in host.told()["missing"]["nvidia"]
    host.nvml.set("unloaded", 0.0)
    host.until(lambda: host.uuids() == [A100, A40])
    assert host.told()["missing"] == {}


def test_a_lost_gpu_is_shown_as_missing_and_taken_up_once_it_is_back(host: Host) -> None:
    host.nvml.set("lost", 1.0)
    host.serve()
    assert host.uuids() == [A40]
    assert "lost" in host.told()["missing"]["nvidia:0"]
    host.nvml.set("lost", 0.0)
    host.until(lambda: sorted(host.uuids()) == sorted([A100, A40]))
