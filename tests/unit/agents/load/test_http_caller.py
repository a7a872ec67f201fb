from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from agents.load.http_caller import CUT_OFF, HttpCaller, parse_head
from tests.processes import reserved_port

NO_ANSWER = "not a complete HTTP/1 response with a Content-Length or chunks"


def ok(body: bytes = b'{"label":1}', extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (extra, len(body), body)


class Canned:
    """A server that answers each request with the next list of byte strings, then closes."""

    def __init__(self, *connections: list[list[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(connections,), daemon=True)
        self._thread.start()

    def _serve(self, connections: tuple[list[list[bytes]], ...]) -> None:
        for answers in connections:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with peer:
                for answer in answers:
                    self.requests.append(peer.recv(65536))
                    for piece in answer:
                        peer.sendall(piece)
                        time.sleep(0.002)

    def caller(self, timeout_s: float = 5.0) -> HttpCaller:
        return HttpCaller("127.0.0.1", self.port, "/infer", body=b"{}", timeout_s=timeout_s)

    def close(self) -> None:
        with suppress(OSError):  # ends a wait for a connection; closing does not
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def canned(request: pytest.FixtureRequest) -> Iterator[Canned]:
    server = Canned(*request.param)
    yield server
    server.close()


def chunked(*pieces: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(pieces)


def byte_by_byte(answer: bytes) -> list[bytes]:
    return [answer[i : i + 1] for i in range(len(answer))]


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


@pytest.mark.parametrize(
    ("canned", "expected"),
    [
        ([[[ok()]]], ""),
        ([[byte_by_byte(ok())]], ""),
        ([[[ok(b"")]]], ""),
        ([[[ok().replace(b"200 OK", b"503 Busy")]]], "HTTP 503"),
        ([[[chunked(b"3\r\nabc\r\n", b"a;x=1\r\n0123456789\r\n0\r\n\r\n")]]], ""),
        ([[[chunked(b"0\r\nX-Sum: 1\r\n\r\n")]]], ""),
        ([[byte_by_byte(chunked(b"3\r\nabc\r\n0\r\n\r\n"))]], ""),
        ([[[chunked(b"3\r\nabc\r\n")]]], "ConnectionResetError"),
        ([[[chunked(b"abc\r\nxyz\r\n")]]], "ConnectionResetError"),
        ([[[chunked(b"no size\r\n")]]], NO_ANSWER),
        ([[[b"HTTP/1.1 200 OK\r\n\r\n"]]], NO_ANSWER),
        ([[[b"SSH-2.0-x\r\n\r\n"]]], NO_ANSWER),
        ([[[b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"]]], NO_ANSWER),
        ([[[b"HTTP/1.1 200 OK\r\ncontent-len"]]], NO_ANSWER),
        ([[[ok()[:-3]]]], "ConnectionResetError"),
        ([[[b""]]], "connection closed before a response"),
        ([[[INTERIM]]], NO_ANSWER),
    ],
    indirect=["canned"],
)
def test_one_request_is_sent_and_its_answer_is_judged(canned: Canned, expected: str) -> None:
    caller = canned.caller()
    assert caller.send() == expected
    caller.close()
    first, _, body = canned.requests[0].partition(b"\r\n\r\n")
    assert first.startswith(b"POST /infer HTTP/1.1\r\n")
    assert body == b"{}"


@pytest.mark.parametrize(
    ("canned", "method"),
    [
        ([[[ok()]] * 3], "POST"),
        ([[[chunked(b"3\r\nabc\r\n0\r\n\r\n")]] * 3], "POST"),
        ([[[INTERIM + ok()]] * 3], "POST"),
        ([[byte_by_byte(INTERIM + ok())] * 3], "POST"),
        ([[[ok()[:-11]]] * 3], "HEAD"),
        ([[[chunked()]] * 3], "HEAD"),
        ([[[b"HTTP/1.1 200 OK\r\n\r\n"]] * 3], "HEAD"),
    ],
    indirect=["canned"],
)
def test_the_connection_is_kept(canned: Canned, method: str) -> None:
    caller = HttpCaller("127.0.0.1", canned.port, "/infer", method=method)
    assert [caller.send() for _ in range(3)] == ["", "", ""]
    assert canned.accepted == 1
    caller.close()


@pytest.mark.parametrize(
    "canned",
    [[[[ok()]], [[ok()]]], [[[ok(extra=b"Connection: close\r\n")]], [[ok()]]]],
    indirect=True,
)
def test_a_connection_the_server_closed_between_requests_is_opened_anew(canned: Canned) -> None:
    caller = canned.caller()
    assert [caller.send(), caller.send()] == ["", ""]
    assert canned.accepted == 2
    caller.close()


def test_a_missing_listener_is_a_failure_with_a_reason() -> None:
    assert HttpCaller("127.0.0.1", reserved_port(), "/infer").send() == "Connection refused"


def test_an_answer_that_does_not_come_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = HttpCaller("127.0.0.1", listener.getsockname()[1], "/infer", timeout_s=0.05)
        assert caller.send() == "no response within 0.05 s"
        caller.close()


def test_close_ends_a_request_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = HttpCaller("127.0.0.1", listener.getsockname()[1], "/infer", timeout_s=30.0)
        ended: list[str] = []
        thread = threading.Thread(target=lambda: ended.append(caller.send()), daemon=True)
        thread.start()
        peer, _ = listener.accept()
        with peer:
            assert peer.recv(65536)
            caller.close()
            thread.join(5)
    assert ended == [CUT_OFF]


@pytest.mark.parametrize(
    "canned", [[[byte_by_byte(chunked(b"3\r\nabc\r\n0\r\n\r\n"))]]], indirect=True
)
def test_each_piece_of_an_answer_is_seen_as_it_comes(canned: Canned) -> None:
    seen: list[bytes] = []
    caller = HttpCaller("127.0.0.1", canned.port, "/infer", seen=seen.append)
    assert caller.send() == ""
    caller.close()
    assert b"".join(seen) == chunked(b"3\r\nabc\r\n0\r\n\r\n") and len(seen) > 1


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_has_no_length_to_wait_for(status: int) -> None:
    text = b"HTTP/1.1 %d -\r\nRetry-After: 3\r\nConnection: close\r\nContent-Length: 9" % status
    head = parse_head(text)
    assert (head.status, head.length, head.keep) == (status, 0, False)
    assert head.fields[b"retry-after"] == b"3"


def test_an_ipv6_literal_is_named_in_brackets() -> None:
    """Strict servers answer 400 to `::1:8080` (RFC 9112, 3.2)."""
    assert b"Host: [::1]:8080\r\n" in HttpCaller("::1", 8080, "/")._head
