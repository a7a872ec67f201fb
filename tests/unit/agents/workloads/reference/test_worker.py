from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from agents.workloads.reference.worker import questions


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_every_line_is_a_question_however_its_bytes_arrive(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    ours.sendall(b'{"run": 1}\n{"run": 2}\n{"ru')
    lines = questions(theirs, 30.0, lambda: None)
    assert [next(lines), next(lines)] == [b'{"run": 1}', b'{"run": 2}']
    ours.sendall(b'n": 3}\n')
    assert next(lines) == b'{"run": 3}'
    ours.shutdown(socket.SHUT_WR)
    assert list(lines) == []


def test_a_silence_is_reported_once_and_again_after_the_next_request(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    silences: list[int] = []
    quiet = threading.Semaphore(0)

    def idle() -> None:
        silences.append(len(silences))
        quiet.release()

    def ask() -> None:
        for line in (b"one\n", b"two\n"):
            assert quiet.acquire(timeout=30.0)
            ours.sendall(line)
        assert quiet.acquire(timeout=30.0)
        ours.shutdown(socket.SHUT_WR)

    asking = threading.Thread(target=ask)
    asking.start()
    assert list(questions(theirs, 0.02, idle)) == [b"one", b"two"]
    asking.join(30.0)
    assert silences == [0, 1, 2]
