"""The reference server as a process, and a client of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx2

from agents.host.machine import HostClock
from agents.load.generator import LoadRun, LoadShape
from agents.load.http_caller import HttpCaller
from tests.processes import kill, until

COMMAND = [sys.executable, "-m", "agents.workloads.reference.serve", "--width", "8"]


class RunningServer:
    """A server process with knobs, and a client of it."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready["ready"] is True
        self.url: str = ready["url"]
        self.client = httpx2.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def get(self, path: str) -> dict[str, Any]:
        reply: dict[str, Any] = self.client.get(path).raise_for_status().json()
        return reply

    def put(self, **knobs: object) -> httpx2.Response:
        return self.client.put("/knobs", json=knobs)

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Running(RunningServer):
    """The reference server with a small model."""

    def __init__(self, *options: str) -> None:
        super().__init__(*COMMAND, *options)

    def workers(self) -> list[int]:
        """The worker processes that serve or are starting."""
        stats = self.get("/stats")
        return [p for p in stats["pids"] if p not in (self.process.pid, *stats["spare_pids"])]

    def kill_spares(self) -> None:
        kill(*self.get("/stats")["spare_pids"])
        until(lambda: self.get("/stats")["spare_pids"] == [], "spares remain")

    def load(self, callers: int = 4) -> LoadRun:
        port = int(self.url.rpartition(":")[2])
        return LoadRun(
            lambda: HttpCaller("127.0.0.1", port, "/infer"), LoadShape(callers), clock=HostClock()
        )
