"""Limits on a caller's connections and requests, on real sockets with deadlines of 0.5 s."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPResponse
from typing import Any

import pytest
import uvicorn

from tests.processes import until
from tuner.service.http.http_limits import BACKLOG, HttpLimits, LogLimit, limited_http

LIMITS = HttpLimits(request_bytes=100_000, unfinished=20, running=60)
HASTY = replace(LIMITS, head_s=0.5, body_s=0.5)
WHOLE = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = 4_000_000
"""More than the kernel buffers of an answer that is not read."""


async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """Read the body and answer its length; `/slow` after two seconds, `/large` with a large body."""
    body, more = b"", scope["type"] == "http"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(2.0)
    content = b"x" * LARGE if scope["path"] == "/large" else str(len(body)).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Door:
    """A server in a thread, and callers on sockets."""

    def __init__(self, limits: HttpLimits) -> None:
        self.dropped: list[None] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=limited_http(limits, lambda: self.dropped.append(None)),
            ws="none",
            lifespan="off",
            log_level="warning",
            limit_concurrency=limits.running,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()
        until(lambda: self._server.started, "the server does not start")
        self._callers: list[socket.socket] = []

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def call(self, request: bytes = b"") -> socket.socket:
        caller = socket.create_connection(self._listener.getsockname(), timeout=60.0)
        self._callers.append(caller)
        caller.sendall(request)
        return caller

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door(LIMITS)
    yield opened
    opened.close()


@pytest.fixture
def hasty() -> Iterator[Door]:
    opened = Door(HASTY)
    yield opened
    opened.close()


def heard(caller: socket.socket) -> bytes:
    """Return all received bytes until the connection ends."""
    received = b""
    while part := caller.recv(65536):
        received += part
    return received


def answer(caller: socket.socket) -> tuple[int, bytes]:
    response = HTTPResponse(caller)
    response.begin()
    return response.status, response.read()


def status(response: bytes) -> int:
    return int(response.split(maxsplit=2)[1])


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HT", CHUNKED, CHUNKED + b"5\r\nhel"],
    ids=["mute", "head", "body", "chunk"],
)
def test_an_unfinished_request_is_refused_and_cut(hasty: Door, begun: bytes) -> None:
    response = heard(hasty.call(begun))
    assert (status(response), b'"code":"timeout"' in response) == (408, True)


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\nX: ", CHUNKED], ids=["head", "body"])
def test_dripping_bytes_does_not_put_off_the_deadline(hasty: Door, begun: bytes) -> None:
    caller, response = hasty.call(begun), b""
    caller.settimeout(0.05)
    drop = b"x" if begun is not CHUNKED else b"1\r\nx\r\n"
    for _ in range(600):  # it would take thirty seconds without the cut
        try:
            caller.sendall(drop)
            response += caller.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            break
        if response:
            break
    assert status(response) == 408


def test_a_whole_request_may_wait_for_its_answer_longer_than_any_deadline(hasty: Door) -> None:
    caller = hasty.call(WHOLE.replace(b"/", b"/slow", 1))
    assert answer(caller) == (200, b"0")


def test_a_connection_is_used_again_after_an_answer(door: Door) -> None:
    caller = door.call()
    for _ in range(3):
        caller.sendall(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
        assert answer(caller) == (200, b"5")


def test_requests_sent_ahead_are_all_answered(door: Door) -> None:
    response = heard(door.call(WHOLE * 20 + b"garbage\r\n\r\n"))
    assert response.count(b"HTTP/1.1 200") == 20


def test_a_caller_that_does_not_read_its_answer_is_cut(hasty: Door) -> None:
    hasty.call(WHOLE.replace(b"/", b"/large", 1))
    until(lambda: hasty.connections == 1, "it does not come in")
    until(lambda: hasty.connections == 0, "it stays")


@pytest.mark.parametrize(
    "head",
    [CHUNKED, b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9000000\r\n\r\n"],
    ids=["chunked", "announced"],
)
def test_a_body_that_is_too_large_is_refused_as_it_arrives(door: Door, head: bytes) -> None:
    caller, chunk = door.call(head), b"1000\r\n" + b"x" * 4096 + b"\r\n"
    try:
        for _ in range(1000):
            caller.sendall(chunk)
    except OSError:
        pass
    else:
        pytest.fail("four megabytes were taken where a tenth of one is allowed")
    code, response = answer(caller)
    assert (code, b'"code":"too_large"' in response) == (413, True)


def test_the_oldest_silent_connection_makes_room(door: Door) -> None:
    silent = [door.call(b"GET / HT") for _ in range(LIMITS.unfinished)]
    until(lambda: door.connections == LIMITS.unfinished, "they do not come in")
    assert answer(door.call(WHOLE)) == (200, b"0")
    assert silent[0].recv(1) == b"", "the oldest is dropped"
    assert len(door.dropped) == 1
    silent[-1].sendall(WHOLE[8:])
    assert answer(silent[-1]) == (200, b"0")


def test_a_caller_that_waits_for_an_answer_is_never_dropped(door: Door) -> None:
    waiting = door.call(WHOLE.replace(b"/", b"/slow", 1))
    until(lambda: door.connections == 1, "it does not come in")
    for _ in range(3 * LIMITS.unfinished):
        door.call(b"GET / HT")
    assert answer(waiting) == (200, b"0")
    until(lambda: door.connections <= LIMITS.unfinished + 1, "the silent ones are not dropped")


def test_a_process_keeps_files_for_itself() -> None:
    for files in (512, 1024, 65_536, 1_048_576):
        limits = HttpLimits.within(files, 1000)
        assert limits.running + limits.unfinished + 4 * BACKLOG <= files - 100
        assert 0 < limits.unfinished <= limits.running
    least = HttpLimits.within(64, 1000)
    assert 0 < least.unfinished <= least.running


def test_a_log_has_the_first_records_and_the_number_of_others() -> None:
    now, logged = [0.0], []
    logger = logging.Logger("test")
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.addFilter(LogLimit(most=2, every_s=60.0, clock=lambda: now[0]))

    def flood(times: int) -> None:
        for number in range(times):
            logger.warning("bad request %d", number)

    flood(7)
    logger.warning("something else")
    assert logged == ["bad request 0", "bad request 1", "something else"]
    now[0] = 60.0
    flood(1)
    assert logged[3:] == ["bad request 0 (5 similar lines were not logged)"]
