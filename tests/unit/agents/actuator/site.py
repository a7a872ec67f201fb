"""The root process itself, in a folder of its own, its fake devices in a file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import agents
from agents.actuator_client.client import RemoteKnobs, open_remote
from agents.actuator_client.line import ActuatorClient
from agents.devices.fake import knobs as fake
from tests.actuation import answers
from tests.builders import Time
from tuner.cli.app import main as jouletune

GPU = "GPU-1"
CLOCK, LIMIT = "gpu.clock_mhz", "gpu.power_limit_w"
FACTORY = {CLOCK: None, "gpu.mem_clock_mhz": None, LIMIT: 400}
TRIED = {CLOCK: 810, LIMIT: 250}
HERE = Path(agents.__file__).parent.parent


class Site:
    """A folder with a configuration, devices in a file, and processes that end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hardware = folder / "hardware.json"
        self.config = folder / "actuator.toml"
        self.socket = folder / "socket"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.remotes: list[RemoteKnobs] = []
        fake.save(self.hardware, fake.blank(GPU))
        self.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }')

    def configure(self, grant: str, more: str = "") -> None:
        self.config.write_text(
            f'socket = "{self.socket}"\nstate_dir = "{self.folder}/state"\n'
            f'drivers = ["fake:{self.hardware}"]\nlease_s = 2.0\n{more}\n'
            f'[[device]]\nmatch = "GPU-*"\n[device.grant]\n{grant}\n'
            '"gpu.power_limit_w" = { min = 150, max = 350 }\n'
        )

    def start(
        self, verb: str = "serve", config: Path | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        argument = (config or self.config) if verb == "serve" else self.folder / "state"
        command = [sys.executable, "-m", "agents.actuator.main", verb, str(argument)]
        log = (self.folder / "log").open("ab")
        with log:
            process = subprocess.Popen(
                command,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(HERE), **environment},
            )
        self.processes.append(process)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        process = self.start()
        self.until(lambda: answers(self.socket))
        return process

    def close(self) -> None:
        for remote in self.remotes:
            remote.close()
        for process in self.processes:
            process.kill()
            process.wait()

    def remote(self) -> RemoteKnobs:
        """Return an agent's connection, closed with the site at the latest."""
        self.remotes.append(open_remote(self.socket, GPU, Time()))
        return self.remotes[-1]

    def console(self, *words: str) -> int:
        return jouletune(["actuator", *words, "--config", str(self.config)])

    def killed_in_a_trial(self) -> None:
        """Leave the device altered, like an actuator that was killed in a trial."""
        process = self.serve()
        remote = self.remote()
        remote.apply(TRIED)
        process.kill()
        process.wait()
        remote.close()
        assert self.values == FACTORY | TRIED

    def until(self, what: Callable[[], object]) -> None:
        end = time.monotonic() + 20.0
        while not what():
            assert time.monotonic() < end, self.log
            time.sleep(0.01)

    def fault(self, faults: dict[str, Any]) -> None:
        state = fake.load(self.hardware)
        state["devices"][GPU]["faults"] = faults
        fake.save(self.hardware, state)

    def shows(self, device: str) -> bool:
        """Return whether the actuator manages a device."""
        with closing(ActuatorClient(self.socket)) as line:
            return device in [about["uuid"] for about in line.ask("capabilities")["devices"]]

    @property
    def mode(self) -> int:
        return self.socket.stat().st_mode & 0o777

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def values(self) -> dict[str, Any]:
        return dict(fake.load(self.hardware)["devices"][GPU]["values"])
