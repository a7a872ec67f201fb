"""The attacked site: a real tuner on SQLite with an operator's, a viewer's and an agent's token."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.frozen.messages import MESSAGES
from tests.integration.stage import Stage, stage
from tuner.core import digest_of

AGENT_TOKEN = "agent-token-of-the-attacker-0123456789"
PATIENCE_S = 60.0


@dataclass
class Scenario:
    """The result of one attack: the passed checks, with counts, and the failed ones."""

    name: str
    counts: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def expect(self, held: bool, what: str) -> None:
        """Record a check if it failed."""
        if not held:
            self.broken.append(what)


class Site:
    """An attacked tuner, and its callers."""

    def __init__(self, played: Stage) -> None:
        self.played = played
        self.admin = played.token_file.read_text().strip()
        made = played.call("POST", "/tokens", {"name": "ann", "role": "operator"})
        self.operator = str(made["token"])
        self.viewer = str(
            played.call("POST", "/tokens", {"name": "vera", "role": "viewer"})["token"]
        )
        played.call("POST", "/enrol", {"agent": "mallory", "digest": digest_of(AGENT_TOKEN)})
        self.registration = MESSAGES["registration"].model_dump(mode="json")
        self.device = str(self.registration["device"]["id"])

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.played.processes["tuner"].pid)

    @property
    def database_bytes(self) -> int:
        """Return the size of the database with its write-ahead log, in bytes."""
        return sum(p.stat().st_size for p in self.played.folder.glob("jouletune.sqlite*"))

    def ask(
        self,
        method: str,
        path: str,
        token: str = "",
        body: object = None,
        raw: bytes | None = None,
        **headers: str,
    ) -> tuple[int, bytes]:
        """Send one request; the status is 0 if the connection was cut."""
        line = http.client.HTTPConnection("127.0.0.1", self.played.tuner_port, timeout=PATIENCE_S)
        given = {"Content-Type": "application/json", **headers}
        if token:
            given["Authorization"] = f"Bearer {token}"
        content = (
            raw if raw is not None else json.dumps(body).encode() if body is not None else None
        )
        try:
            line.request(method, path, body=content, headers=given)
            answer = line.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            line.close()

    def json(self, path: str) -> Any:  # noqa: ANN401
        return json.loads(self.ask("GET", path, self.admin)[1])

    def refused(self, status: int) -> float:
        """Return the number of refusals that were counted but not stored."""
        text = self.ask("GET", "/metrics", self.admin)[1].decode()
        pattern = rf'jouletune_requests_refused_total{{status="{status}"}} (\S+)'
        match = re.search(pattern, text)
        return float(match[1]) if match else 0.0

    @contextmanager
    def watched(self, scenario: Scenario) -> Iterator[None]:
        """Request the health throughout the block; record the longest answer and the peak memory."""
        over, waits = threading.Event(), []

        def watch() -> None:
            while not over.is_set():
                began = time.monotonic()
                status, _ = self.ask("GET", "/v1/health")
                waits.append(time.monotonic() - began if status == 200 else PATIENCE_S)
                over.wait(0.1)

        before = self.process.memory_info().rss
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        scenario.counts["health_asked"] = len(waits)
        scenario.counts["health_worst_s"] = round(max(waits), 3)
        grown = self.process.memory_info().rss - before
        scenario.counts["memory_grown_mb"] = round(grown / 1e6, 1)
        scenario.expect(max(waits) <= HEALTH_S, f"health took {max(waits):.2f} s")
        scenario.expect(grown <= MOST_GROWN, f"the tuner grew by {grown / 1e6:.0f} MB")


HEALTH_S = 2.0
"""The limit on a busy machine; on an idle one it takes 0.1 s."""
MOST_GROWN = 300 * 1000 * 1000


def at_once(count: int, threads: int, one: Callable[[int], object]) -> Counter[object]:
    """Call a function `count` times in several threads; return the number of calls by result."""
    seen: Counter[object] = Counter()
    numbers, lock = iter(range(count)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            found = one(number)
            with lock:
                seen[found] += 1

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return seen


@contextmanager
def opened(folder: Path) -> Iterator[Site]:
    """Start a tuner in a folder."""
    with stage(folder) as played:
        played.start_tuner()
        yield Site(played)
