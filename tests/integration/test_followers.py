"""Followers of the event stream that never read, over real sockets to a real tuner."""

from __future__ import annotations

import json
import re
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psutil
import pytest

from db import open_store
from tests.integration.stage import Stage, stage
from tests.processes import until
from tuner.core import Event

FOLLOWERS, A_TOKEN = 200, 25
"""The number of followers, and of those with one token: the tuner permits 32 per token."""
EVENTS = 1_000
TEXT = "x" * 2_000
EACH_BYTES = 300_000
"""The bytes of the tuner per follower: a write buffer, and a page of the log. All events are 2 MB."""
KERNEL_BYTES = 600_000
"""The bytes of the kernel per follower: twice the requested buffer, and its accounting of packets."""
IMPATIENT = """
import sys
from dataclasses import replace
from tuner.cli.app import main
from tuner.service.http.http_limits import HttpLimits
within = HttpLimits.within
HttpLimits.within = lambda files, body: replace(within(files, body), body_s=5.0)
sys.exit(main())
"""
"""A tuner that waits 5 s instead of a minute for an answer to be read."""


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        playing.tuner = [sys.executable, "-c", IMPATIENT]
        playing.start_tuner()
        yield playing


def follow(played: Stage, token: str) -> socket.socket:
    """Request the stream from its beginning, with a tiny receive buffer."""
    follower = socket.socket()
    follower.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    follower.connect(("127.0.0.1", played.tuner_port))
    head = f"GET /v1/events/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{played.tuner_port}\r\n"
    follower.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    return follower


def read(played: Stage, token: str, after: int, last: int) -> list[str]:
    """Follow from an event to the last one; return their texts."""
    texts: list[str] = []
    url = f"http://127.0.0.1:{played.tuner_port}/v1/events/stream"
    headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": str(after)}
    with httpx2.stream("GET", url, headers=headers, timeout=60.0) as answer:
        at = after
        for line in answer.iter_lines():
            if line.startswith("id: "):
                at = int(line.removeprefix("id: "))
            elif line.startswith("data: "):
                texts.append(json.loads(line.removeprefix("data: "))["text"])
                if at == last:
                    return texts
    raise AssertionError("the stream ended before the last event")


@pytest.mark.slow
@pytest.mark.promise("a webhook is down, or a stream client stops reading")
def test_followers_that_never_read_take_bounded_memory_are_dropped_and_catch_up(
    played: Stage,
) -> None:
    token = played.token_file.read_text().strip()
    tuner = psutil.Process(played.processes["tuner"].pid)

    def connections() -> int:
        return len([c for c in tuner.net_connections() if c.status == psutil.CONN_ESTABLISHED])

    def kernel_bytes() -> int:
        """Return the bytes that the kernel buffers for all TCP connections of this machine."""
        (line,) = re.findall(r"^TCP: .* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.M)
        return int(line) * resource.getpagesize()

    viewers = [
        played.call("POST", "/tokens", {"name": f"viewer-{n}", "role": "viewer"})["token"]
        for n in range(FOLLOWERS // A_TOKEN)
    ]
    for viewer in viewers:  # the first check of each token takes extra memory, for Argon2
        url = f"http://127.0.0.1:{played.tuner_port}/v1/studies"
        assert httpx2.get(url, headers={"Authorization": f"Bearer {viewer}"}).status_code == 200
    before, kernel_before = tuner.memory_info().rss, kernel_bytes()

    with ExitStack() as followers:
        for number in range(FOLLOWERS):
            followers.enter_context(follow(played, viewers[number // A_TOKEN]))
        until(lambda: connections() >= FOLLOWERS, "not everybody follows")
        with closing(open_store(played.db)) as store:
            for number in range(EVENTS):
                at = datetime.now(UTC)
                store.events.add(Event(at=at, kind="test", text=f"{number} {TEXT}"))
            last = store.events.newest()
        texts = read(played, token, 0, last)
        assert [t.split()[0] for t in texts if t.endswith(TEXT)] == [str(n) for n in range(EVENTS)]
        most = kernel_most = 0
        until_s = time.monotonic() + 120.0
        while connections() and time.monotonic() < until_s:
            most = max(most, tuner.memory_info().rss - before)
            kernel_most = max(kernel_most, kernel_bytes() - kernel_before)
            time.sleep(0.2)
        assert connections() == 0
        assert most <= FOLLOWERS * EACH_BYTES
        assert kernel_most <= FOLLOWERS * KERNEL_BYTES
    assert read(played, token, last - 3, last)[0].split()[0] == str(EVENTS - 3)
