"""No request blocks the event loop, whatever its body is, and however slow the database is.

Every step of the loop is timed, in its thread's CPU time and by the clock; of three rounds the median
counts, because a loaded machine sometimes suspends a thread.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from tests.builders import Time, device, policies
from tests.processes import until
from tests.stores import memory_store
from tuner.core import AccessRole, digest_of
from tuner.service.access import ADMIN as ADMIN_CALLER
from tuner.service.fleet import FleetOverview
from tuner.service.http.api import create_app
from tuner.service.http.bodies import OPEN_BYTES
from tuner.service.http.http_limits import HttpLimits, limited_http
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.study.loop import Loop
from tuner.web.app import create_pages
from tuner.wire import MOST_ORDER_BYTES, Enrolment, Message, TokenDraft

ADMIN = "the admin's own token"
CPU_S, WALL_S = 0.05, 0.25
ROUNDS = 3
SILENT_S = 0.5
LARGE = 8 * 1024 * 1024
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
STREAM = "/v1/events/stream"
"""A stream that never ends by itself."""


@dataclass
class Steps:
    """The longest step of a loop since the last read: CPU seconds of its thread, and wall seconds."""

    thread: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def taken(self) -> tuple[float, float]:
        longest = self.cpu_s, self.wall_s
        self.cpu_s = self.wall_s = 0.0
        return longest


class Silent:
    """A part of a store that answers late on demand."""

    def __init__(self, inner: Any, whole: SilentStore) -> None:  # noqa: ANN401
        self._inner, self._whole = inner, whole

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        attribute = getattr(self._inner, name)

        def late(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            time.sleep(self._whole.pause_s)
            return attribute(*args, **named)

        return late if callable(attribute) else attribute


class SilentStore:
    """A store that answers late on demand, except for its bus."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._inner = memory_store()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        attribute = getattr(self._inner, name)
        return attribute if name == "bus" else Silent(attribute, self)

    def check_writable(self) -> None:
        time.sleep(self.pause_s)

    def ping(self) -> None:
        time.sleep(self.pause_s)


class Door:
    """A tuner with its pages on a real socket, whose loop's steps are timed."""

    def __init__(self, steps: Steps) -> None:
        self.store, self.steps = SilentStore(), steps
        store: Any = self.store
        self.verbs = Operations(Loop(store, policies, Time().now))
        self.verbs.loop.register(device())
        access = self.verbs.access
        access.enrol(ADMIN_CALLER, Enrolment(agent="agent", digest=digest_of("agent's")))
        access.create(TokenDraft(name="operator", role=AccessRole.OPERATOR))
        fleet = FleetOverview(self.verbs, Summaries(self.verbs))
        kept: list[Any] = []

        def pages(sessions: Any) -> Any:  # noqa: ANN401
            self.cookie = sessions.open(ADMIN, "")
            kept.append(create_pages(fleet, sessions, "0", secure=False))
            return kept[0]

        app = create_app(self.verbs, ADMIN, frozenset({"127.0.0.1"}), "0", fleet=fleet, pages=pages)
        limits = HttpLimits.within(1024, MOST_ORDER_BYTES)
        config = uvicorn.Config(
            app, http=limited_http(limits), ws="none", loop="asyncio", log_level="critical"
        )
        self._server = uvicorn.Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: self._server.started, "the server does not start")
        self.port = self._listener.getsockname()[1]
        _, described = self.ask("GET", "/v1/openapi.json", ADMIN)
        self.routes = routes_of(json.loads(described))
        self.page_routes = routes_of(kept[0].openapi())
        for _, path in self.routes + self.page_routes:  # the objects created at the first request
            self.ask("GET", asked(path), ADMIN, cookie=self.cookie)
        steps.taken()

    def _run(self) -> None:
        self.steps.thread = threading.get_ident()
        self._server.run(sockets=[self._listener])

    def ask(
        self,
        method: str,
        path: str,
        token: str = "",
        body: bytes = b"",
        kind: str = JSON,
        cookie: str = "",
    ) -> tuple[int, bytes]:
        """Send one request; return (0, b"") if the tuner closed the connection during the body."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        headers = {"Content-Type": kind}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if cookie:
            headers["Cookie"] = f"jouletune_session={cookie}"
        try:
            line.request(method, path, body=body or None, headers=headers)
            answer = line.getresponse()
            if path.startswith(STREAM):
                return answer.status, b""
            return answer.status, answer.read()
        except (BrokenPipeError, ConnectionResetError):
            return 0, b""
        finally:
            line.close()

    def close(self) -> None:
        self.store.pause_s = 0.0
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def routes_of(described: dict[str, Any]) -> list[tuple[str, str]]:
    paths = described["paths"].items()
    return [(method.upper(), path) for path, methods in paths for method in methods]


def asked(path: str) -> str:
    if path == STREAM:
        return f"{path}?after=never"
    return (
        path.replace("{device}", "sim")
        .replace("{study}", "none")
        .replace("{name}", "none")
        .replace("{number}", "1")
    )


def hostile(most: int) -> dict[str, tuple[bytes, str]]:
    """Return bodies of this size that are as expensive as possible to parse."""
    return {
        "form": (b"a&" * (most // 2), FORM),
        "fields": (b"a=%41&" * (most // 6), FORM),
        "nested": (b"[" * most, JSON),
        "lists": (b"[" + b"[]," * (most // 3 - 2) + b"0]", JSON),
        "numbers": (b"[" + b"1," * (most // 2 - 2) + b"1]", JSON),
        "keys": (b'{"protocol":1' + b',"a":0' * (most // 6 - 4) + b"}", JSON),
        "unable": (b'{"unable":"' + b"x" * (most - 40) + b'"}', JSON),
        "space": (
            b'{"device":{"space":{"knobs":[' + b"{}," * ((most - 60) // 3) + b"{}]}}}",
            JSON,
        ),
    }


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    steps = Steps()
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        if threading.get_ident() != steps.thread:
            run(handle)
            return
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        run(handle)
        steps.cpu_s = max(steps.cpu_s, time.thread_time() - cpu_s)
        steps.wall_s = max(steps.wall_s, time.perf_counter() - wall_s)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    made = Door(steps)
    yield made
    made.close()


def longest(door: Door, ask: Callable[[], None]) -> tuple[float, float]:
    """Return the longest step during a request; if it is too long, the median of three rounds."""
    durations: list[tuple[float, float]] = []
    while not durations or (len(durations) < ROUNDS and too_long(max(durations))):
        door.steps.taken()
        ask()
        durations.append(door.steps.taken())
    return statistics.median(c for c, _ in durations), statistics.median(w for _, w in durations)


def too_long(step: tuple[float, float]) -> bool:
    return step[0] > CPU_S or step[1] > WALL_S


def test_no_body_blocks_the_event_loop_from_any_sender_on_any_route(door: Door) -> None:
    changing = [r for r in door.routes + door.page_routes if r[0] in ("POST", "PUT")]
    assert len(changing) >= 25
    seen: dict[str, tuple[float, float]] = {}
    for method, path in changing:
        api = path.startswith("/v1/")
        agents = "device" in path or "/trials/" in path or path in AGENTS
        token = ("agent's" if agents else ADMIN) if api else ""
        most = MOST_ORDER_BYTES if method == "PUT" and "device" in path else Message.most_bytes
        most = OPEN_BYTES if path == "/login" else most
        for name, (body, kind) in hostile(most).items():
            asking = (method, asked(path), token, body, kind, "" if api else door.cookie)

            def ask(asking: Any = asking, path: str = path) -> None:  # noqa: ANN401
                status, reply = door.ask(*asking)
                assert 400 <= status < 500 or status in (0, 200, 303), (path, status, reply)

            seen[f"{method} {path} {name}"] = longest(door, ask)
    assert {what: step for what, step in seen.items() if too_long(step)} == {}


AGENTS = ("/v1/holds/report", "/v1/reverts")


def test_eight_megabytes_are_refused_without_delaying_others(door: Door) -> None:
    bodies = hostile(LARGE)
    for path, name in (
        ("/login", "form"),
        ("/v1/devices/sim/next", "unable"),
        ("/v1/studies", "lists"),
    ):
        for token in ("", "operator.wrong", "agent's", ADMIN):

            def ask(path: str = path, token: str = token, name: str = name) -> None:
                status, reply = door.ask("POST", path, token, *bodies[name])
                assert status in (0, 413), reply
                assert door.ask("GET", "/v1/health")[0] == 200

            assert not too_long(longest(door, ask)), (path, token)


def test_a_silent_database_delays_only_requests_that_need_it(door: Door) -> None:
    assert len(door.routes + door.page_routes) >= 60
    waiting: list[float] = []

    def ask() -> None:
        door.store.pause_s = SILENT_S
        with ThreadPoolExecutor(16) as pool:
            begun = [
                pool.submit(
                    door.ask,
                    method,
                    asked(path),
                    "" if page else token,
                    b"{}" if not page else b"token=operator.wrong",
                    JSON if not page else FORM,
                    door.cookie if page else "",
                )
                for page, routes in ((False, door.routes), (True, door.page_routes))
                for method, path in routes
                for token in (["operator.wrong", ADMIN, "agent's"] if not page else [""])
            ]
            for _ in range(20):
                began = time.perf_counter()
                assert door.ask("GET", "/v1/health")[0] == 200
                waiting.append(time.perf_counter() - began)
                time.sleep(0.05)
            door.store.pause_s = 0.0
            for one in begun:
                one.result()

    assert not too_long(longest(door, ask))
    assert statistics.median(waiting) < WALL_S
