"""Many agents that only wait, as raw connections in one process: cheap enough to measure the tuner by."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from tests.builders import applied, device
from tuner.core import digest_of
from tuner.wire import ORDER, Enrolment, Poll, Registration

REGISTERING = 32
"""So many register at once."""
PER_HOST = 8


def secret_of(number: int) -> str:
    """Return the token of the host that has a device."""
    return f"host{number - number % PER_HOST}-" + "y" * 40


@dataclass
class Line:
    """One connection to the tuner, asked again and again."""

    port: int
    token: str
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: str = "") -> tuple[int, bytes]:
        """Return the status and the body of an answer; a connection that was left idle may be gone."""
        if self._streams is not None:
            with suppress(OSError, asyncio.IncompleteReadError):
                return await self._ask(self._streams, method, path, body)
        self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        return await self._ask(self._streams, method, path, body)

    async def _ask(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        method: str,
        path: str,
        body: str,
    ) -> tuple[int, bytes]:
        reader, writer = streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body.encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            fields = dict(
                line.lower().split(": ", 1) for line in answer.decode().split("\r\n")[1:] if line
            )
            return int(answer[9:12]), await reader.readexactly(int(fields["content-length"]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Crowd:
    """Hosts with `PER_HOST` devices each, `d0`, `d1`, …; `ordered` is when each got something to do."""

    port: int
    admin: str
    count: int
    wait_s: float = 60.0
    ordered: dict[str, float] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def register(self) -> None:
        """Enrol all hosts and introduce their devices."""
        numbers = iter(range(self.count))

        async def introduce() -> None:
            admin, line = Line(self.port, self.admin), Line(self.port, "")
            for n in numbers:
                line.token = secret_of(n)
                if n % PER_HOST == 0:
                    digest = digest_of(line.token)
                    asked = Enrolment(agent=f"host{n}", digest=digest).model_dump_json()
                    assert (await admin.ask("POST", "/v1/enrol", asked))[0] == 200
                while n % PER_HOST and secret_of(n) not in enrolled:
                    await asyncio.sleep(0.05)
                enrolled.add(line.token)
                body = Registration(device=device(f"d{n}")).model_dump_json()
                status, text = await line.ask("PUT", f"/v1/devices/d{n}", body)
                assert status == 200, text
            line.close()
            admin.close()

        enrolled: set[str] = set()
        await asyncio.gather(*(introduce() for _ in range(REGISTERING)))

    def wait(self) -> None:
        """Begin to wait for orders."""
        self._tasks = [asyncio.create_task(self._wait(f"d{n}", n)) for n in range(self.count)]

    async def end(self) -> None:
        """Let go of all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, name: str, number: int) -> None:
        await asyncio.sleep(number * self.wait_s / self.count)  # a fleet does not ask in one moment
        line = Line(self.port, secret_of(number))
        while True:
            poll = Poll(agent=f"{name}/1", applied=applied(name), wait_s=self.wait_s)
            try:
                status, text = await line.ask(
                    "POST", f"/v1/devices/{name}/next", poll.model_dump_json()
                )
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(1.0)
                continue
            if status == 200 and ORDER.validate_json(text).kind == "trial":
                self.ordered.setdefault(name, time.monotonic())
                await asyncio.sleep(3600.0)
