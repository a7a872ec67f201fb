"""A tuner under attack by unknown callers: it answers, and its memory and its log stay small."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPResponse

import httpx2
import pytest

from tests.integration.stage import Stage, stage
from tests.processes import proc

FILES = 512
"""The tuner's limit of open files; the attacker has more connections."""
ATTACKERS = 700
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("attacked")) as opened:
        with few_files():
            opened.start_tuner()
        yield opened


@contextmanager
def few_files() -> Iterator[None]:
    """Lower the limit of open files, which children inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def silent(port: int, begun: bytes) -> Iterator[list[socket.socket]]:
    callers: list[socket.socket] = []
    try:
        for _ in range(ATTACKERS):
            caller = socket.create_connection(("127.0.0.1", port), timeout=60.0)
            callers.append(caller)
            with suppress(OSError):  # dropped already
                caller.sendall(begun)
        yield callers
    finally:
        for caller in callers:
            caller.close()


def health(site: Stage) -> int:
    return httpx2.get(f"http://127.0.0.1:{site.tuner_port}/v1/health", timeout=60.0).status_code


def log_bytes(site: Stage) -> int:
    return (site.folder / "tuner.log").stat().st_size


def resident_bytes(site: Stage) -> int:
    status = proc(site.processes["tuner"].pid, "status")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@pytest.mark.promise(
    "callers without a token flood the tuner",
    "deadlines and size limits apply, and the oldest unfinished connection is "
    "dropped; health answers, memory and log stay small",
)
@pytest.mark.parametrize(
    "begun",
    [
        b"GET /v1/hea",
        b"POST /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["half a head", "no chunk", "no body"],
)
@pytest.mark.slow
def test_health_answers_beside_hundreds_of_half_requests(found: Stage, begun: bytes) -> None:
    with silent(found.tuner_port, begun):
        for _ in range(3):
            assert health(found) == 200
    assert "socket.accept() out of system resource" not in found.log("tuner")
    assert log_bytes(found) < 10_000


@pytest.mark.slow
def test_hundreds_of_malformed_requests_leave_a_few_lines_in_the_log(found: Stage) -> None:
    before = log_bytes(found)
    for _ in range(3):
        with silent(found.tuner_port, b"no HTTP at all\r\n\r\n"):
            assert health(found) == 200
    assert log_bytes(found) - before < 10_000


@pytest.mark.slow
def test_a_caller_with_half_a_head_is_cut(found: Stage) -> None:
    with socket.create_connection(("127.0.0.1", found.tuner_port), timeout=60.0) as caller:
        caller.sendall(b"GET /v1/hea")
        assert caller.recv(65536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.promise("callers without a token flood the tuner")
def test_a_body_in_chunks_is_refused_before_it_fills_the_memory(found: Stage) -> None:
    before, chunk = resident_bytes(found), b"100000\r\n" + b"x" * MIB + b"\r\n"
    token = found.token_file.read_text().strip()
    head = (
        "POST /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", found.tuner_port), timeout=60.0) as caller:
        caller.sendall(head.encode())
        sent = 0
        with suppress(OSError):
            while sent < 256:
                caller.sendall(chunk)
                sent += 1
        assert sent < 64, "it goes on taking"
        answer = HTTPResponse(caller)
        answer.begin()
        assert answer.status == 413
    assert resident_bytes(found) - before < 48 * MIB
    assert health(found) == 200
    assert "Traceback" not in found.log("tuner")
