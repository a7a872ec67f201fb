"""The start, the readiness and the end of our own servers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from agents.host.http.serving import body_of, listening, url_of
from tests.errors import raised
from tuner.core import InvalidInput

WAIT_S = 30.0
PROGRAM = """
import signal, sys
from agents.host.http.serving import end_by_signal, end_with_stdin, listening, tell_ready
end_by_signal()
tell_ready(listening(0))
end_with_stdin()
signal.pause()
"""


def started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_free_port_is_on_loopback_and_reported() -> None:
    with listening(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        socket.create_connection((host, port), WAIT_S).close()


def test_a_taken_port_and_an_invalid_one_are_refused_with_the_option() -> None:
    with listening(0) as listener:
        for port in (listener.getsockname()[1], 70000):
            with raised(InvalidInput, "127.0.0.1", port, "--port"):
                listening(port)


def test_a_server_prints_its_address_and_ends_with_its_parent() -> None:
    with started() as served:
        assert served.stdout is not None and served.stdin is not None
        ready = json.loads(served.stdout.readline())
        assert ready["ready"] is True and ready["pid"] == served.pid
        assert ready["url"].startswith("http://127.0.0.1:")
        served.stdin.close()
        assert served.wait(WAIT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_with_status_0_at_a_signal(number: signal.Signals) -> None:
    with started() as served:
        assert served.stdout is not None
        served.stdout.readline()
        served.send_signal(number)
        assert served.wait(WAIT_S) == 0


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("identity", 200)])
def test_a_packed_body_is_refused(coding: str, status: int) -> None:
    async def echo(request: Request) -> Response:
        return Response(await body_of(request))

    client = TestClient(Starlette(routes=[Route("/", echo, methods=["POST"])]))
    answer = client.post("/", content=b"x", headers={"Content-Encoding": coding})
    assert answer.status_code == status
