"""The accepted Host headers, over a real socket: frameworks parse them differently."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from tests.builders import Time, policies
from tests.stores import memory_store
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop

NAMES = frozenset({"localhost", "127.0.0.1", "::1", "Tuner-1.example"})


@pytest.fixture(scope="module", params=["h11", "httptools"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield the port of a real server, with each of uvicorn's parsers."""
    operations = Operations(Loop(memory_store(), policies, Time().now))
    app = create_app(operations, "secret", NAMES, "0")
    server = uvicorn.Server(uvicorn.Config(app, http=request.param, log_level="critical"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    deadline = time.monotonic() + 60.0
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def status(port: int, path: str, *headers: str) -> int:
    """Return the status of the answer to exactly these bytes."""
    head = "\r\n".join([f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""])
    with socket.create_connection(("127.0.0.1", port), timeout=60.0) as line:
        line.sendall(head.encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    return int(answer.split(b" ", 2)[1])


@pytest.mark.promise("callers without a token flood the tuner")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1/v1/health?",
        "127.0.0.1/v1/health#",
        "127.0.0.1:80/v1/health?x=",
        "evil@127.0.0.1",
        "127.0.0.1:80:80",
        "127.0.0.1:http",
        "127.0.0.1, evil.example",
        "[::1",
        "evil.example",
        "",
    ],
)
def test_a_foreign_host_header_opens_nothing(port: int, host: str) -> None:
    for path in ("/v1/studies", "/v1/health"):
        assert status(port, path, f"Host: {host}") == 400


def test_two_host_headers_or_none_are_refused(port: int) -> None:
    assert status(port, "/v1/health", "Host: localhost", "Host: evil.example") == 400
    assert status(port, "/v1/health") == 400


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.:8790", "127.0.0.1:1", "[::1]:8790", "tuner-1.EXAMPLE"]
)
def test_the_tuners_own_names_are_heard_and_still_need_the_token(port: int, host: str) -> None:
    assert status(port, "/v1/health", f"Host: {host}") == 200
    assert status(port, "/v1/studies", f"Host: {host}") == 401
    assert status(port, "/v1/studies", f"Host: {host}", "Authorization: Bearer secret") == 200


@pytest.mark.parametrize("path", ["/v1/studies?/v1/health", "/v1/health/../studies", "//v1/health"])
def test_only_the_open_paths_themselves_are_open(port: int, path: str) -> None:
    assert status(port, path, "Host: localhost") == 401
