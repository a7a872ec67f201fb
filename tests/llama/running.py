"""A speculation proxy as a process, in front of a llama-server, real or stand-in."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

START_S = 120.0
END_S = 60.0


class RunningProxy:
    """The process, its address, and a client of it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, per_request: bool) -> None:
        self.process = process
        self.url = url
        self.per_request = per_request
        self.client = httpx2.Client(base_url=url, timeout=60.0, trust_env=False)

    def get(self, path: str) -> dict[str, Any]:
        response = self.client.get(path)
        assert response.is_success, response.text
        return dict(response.json())

    def put(self, path: str, body: object) -> httpx2.Response:
        return self.client.put(path, json=body)

    def set_length(self, length: int) -> None:
        response = self.put("/knobs", {"speculation_length": length})
        assert response.json() == {"setting": {"speculation_length": length}}, response.text

    def complete(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
        response = self.client.post("/completion", json={"prompt": "x", **fields})
        assert response.is_success, response.text
        return dict(response.json())

    def stats(self) -> dict[str, Any]:
        return self.get("/stats")


def command_of(arguments: Sequence[str]) -> list[str]:
    program = "import sys; from tuner.cli.app import main; sys.exit(main())"
    return [sys.executable, "-c", program, "workload", "proxy", *arguments]


@contextmanager
def proxy_for(
    command: Sequence[str], drafts: Mapping[str, Path], folder: Path, *options: str
) -> Iterator[RunningProxy]:
    """Run a proxy within the block; the proxy starts the server by `command`."""
    named = [part for name, path in drafts.items() for part in ("--draft", f"{name}={path}")]
    state = ["--state-dir", str(folder / "state")]
    with running([*named, *state, *options, "--", *command], folder) as proxy:
        yield proxy


@contextmanager
def running(
    arguments: Sequence[str], folder: Path, within_s: float = START_S
) -> Iterator[RunningProxy]:
    """Run a proxy with these arguments within the block; its engine starts within so many seconds."""
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            command_of(["--port", "0", "--json", *arguments]), stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], within_s)
        line = process.stdout.readline() if readable else b""
        assert line, (folder / "proxy.log").read_text()
        ready = json.loads(line)
        proxy = RunningProxy(process, ready["url"], ready["per_request"])
        with proxy.client:
            yield proxy
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
