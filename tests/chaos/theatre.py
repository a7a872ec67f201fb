"""A test stage: a fake device, an actuator process that a test kills, and the conditions that must hold
then.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.driver import DriverProcess, KnobDriver
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import COPIES, RestoreJournal
from agents.actuator.main import ActuatorService, serve
from agents.devices.fake import knobs as fake
from tests.actuation import actuator_of, listening
from tests.chaos.points import (
    CountedDisk,
    CountedDriver,
    InlineDriver,
    Points,
    count_sockets,
    fork,
    reap_all,
)

GPU = "GPU-1"
BOOT = "this boot"
FACTORY = {"gpu.clock_mhz": None, "gpu.mem_clock_mhz": None, "gpu.power_limit_w": 400}
TRIED = {"gpu.clock_mhz": 810, "gpu.power_limit_w": 250}
TRIED_NEXT = {"gpu.clock_mhz": 630, "gpu.power_limit_w": 350}
HELD = {"gpu.clock_mhz": 870, "gpu.power_limit_w": 300}

CEILING_TRIED, CEILING_HELD = {fake.CEILING: 2400}, {fake.CEILING: 3000}
CAP, LOWER = 2800, 2000
REAL = 20
SEAL = re.compile(rb'"sha256[^,]*,|number[^,]*,')
"""The part of a journal by which its two copies differ without different content."""
Request = Mapping[str, Any]
ACQUIRE: Request = {"verb": "acquire", "device": GPU, "lease_s": 5.0}
APPLY: Request = {"verb": "apply", "device": GPU, "setting": TRIED}
APPLY_NEXT: Request = {"verb": "apply", "device": GPU, "setting": TRIED_NEXT}
RENEW: Request = {"verb": "renew", "device": GPU, "lease_s": 5.0}
RELEASE: Request = {"verb": "release", "device": GPU}
READ: Request = {"verb": "read", "device": GPU}
HOLD: Request = {
    "verb": "hold",
    "device": GPU,
    "setting": HELD,
    "valid_for_s": 1000.0,
}


def pass_s(seconds: float) -> Request:
    """Return a step that advances the actuator's clock."""
    return {"shift_s": seconds}


CLOSE: Request = {"close": True}


def behind(**done: Any) -> Request:  # noqa: ANN401 - JSON
    """Return a step in which the hardware changes without the actuator.

    `cap`: the kernel caps the ceiling, or stops; `lower`: another program lowers it; `reload`: the driver
    is reloaded, as by a resume, and all values are the factory's.
    """
    return {"behind": done}


@dataclass
class Theatre:
    """A folder with a device in a file, a journal and a socket."""

    folder: Path
    faults: dict[str, Any] = field(default_factory=dict)
    clock: Points = field(default_factory=Points)
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: fake.A100)
    floor: Mapping[str, int] = field(default_factory=dict)
    inline: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.found: Sequence[Mapping[str, Any]] = ()
        self.hardware = self.folder / "hardware.json"
        self.journal, self.notes = self.folder / "journal", self.folder / "notes"
        self.journal.mkdir(parents=True)
        self.config = ActuatorConfig(
            socket=str(self.folder / "socket"),
            state_dir=str(self.journal),
            group="nobody-has-this-group",
            lease_s=5.0,
            agent_grace_s=20.0,
            deadline_s=5.0,
            devices=(
                Granted(
                    match="GPU-*",
                    grant={
                        knob: (values[0], values[-1])
                        for knob in (*self.knobs,)
                        if knob != "gpu.mem_clock_mhz" and (values := self.knobs[knob]["values"])
                    },
                    floor=self.floor,
                ),
            ),
        )
        self.renew_hardware()

    def renew_hardware(self) -> None:
        state = fake.blank(GPU, knobs=self.knobs)
        state["devices"][GPU]["faults"] = self.faults
        fake.save(self.hardware, state)
        for left in self.journal.iterdir():
            left.unlink()

    def killed_everywhere(
        self, played: tuple[Request, ...], after: Callable[[], str] | None = None
    ) -> tuple[list[str], list[str]]:
        """Play a script, and restart from the state that a kill before each step leaves.

        Return the steps, and what was wrong. A killed process leaves hardware and journal as before its
        step, so the script is played once and both are stored at every step. Each `REAL`th process is
        really killed, and its state must equal the stored one. `after` restarts and checks.
        """
        dry, wrong = Points(note=self.note), list[str]()
        self.play(played, dry)
        self.restore()
        after = after or self.put_back
        for at in range(1, len(dry.labels) + 1, REAL):
            self.return_to(at)
            noted = self.left()
            self.renew_hardware()
            self.play(played, Points(at))
            assert self.left() == noted, f"a kill before {dry.labels[at - 1]} leaves something else"
            if problem := after():
                wrong.append(f"really killed before {at} ({dry.labels[at - 1]}): {problem}")
        with self.hastened():
            for at, label in enumerate(dry.labels, 1):
                self.return_to(at)
                if problem := after():
                    wrong.append(f"killed before {at} ({label}): {problem}")
        return dry.labels, wrong

    @contextmanager
    def hastened(self) -> Iterator[None]:
        """Call drivers in this process, which takes a tenth of the time of a separate one."""
        self.inline = True
        try:
            yield
        finally:
            self.inline = False

    def quickly(self, at: int) -> AbstractContextManager[None]:
        """Work in this process at a point, except at each `REAL`th."""
        return nullcontext() if at % REAL == 1 else self.hastened()

    def put_back(self) -> str:
        """Do as the next start does; return what is wrong then."""
        left = self.restore()
        return self.check_original() or str(left or "")

    def note(self, number: int) -> None:
        """Store the state that outlives a killed process, under a number."""
        kept = self.notes / str(number)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.journal, kept / "journal")
        if self.hardware.exists():
            shutil.copy(self.hardware, kept)

    def return_to(self, number: int) -> None:
        """Restore the stored hardware and journal."""
        self.renew_hardware()
        kept = self.notes / str(number)
        shutil.copytree(kept / "journal", self.journal, dirs_exist_ok=True)
        if self.hardware.exists():
            shutil.copy(kept / self.hardware.name, self.hardware)

    def left(self) -> tuple[object, ...]:
        """Return the state that outlives a killed process, without the numbers of the journal's writes."""
        files = sorted((p.name, SEAL.sub(b"", p.read_bytes())) for p in self.journal.iterdir())
        return self.values, files

    @property
    def values(self) -> dict[str, Any]:
        """The hardware's setting."""
        values: dict[str, Any] = fake.load(self.hardware)["devices"][GPU]["values"]
        return values

    @property
    def lowered(self) -> bool:
        """Whether another program has lowered the ceiling."""
        return "lowered" in fake.load(self.hardware)

    def happens(self, cap: int | None = None, lower: int = 0, reload: str = "") -> None:
        """Change the hardware as a `behind` step says."""
        state = fake.load(self.hardware)
        device = state["devices"][GPU]
        if cap:
            device["cap"] = cap
        else:
            device.pop("cap", None)
        if lower:
            device["values"][fake.CEILING] = lower
            state["lowered"] = True
        if reload:
            state["epoch"] = reload
            device["values"] = {knob: known["default"] for knob, known in self.knobs.items()}
        fake.save(self.hardware, state)

    @property
    def journalled(self) -> bool:
        return any(path.suffix in COPIES for path in self.journal.iterdir())

    def snapshot(self) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
        files = sorted((p.name, p.read_bytes()) for p in self.journal.iterdir())
        return self.hardware.read_bytes(), tuple(files)

    def put_on(self, snapshot: tuple[bytes, tuple[tuple[str, bytes], ...]]) -> None:
        hardware, files = snapshot
        self.renew_hardware()
        self.hardware.write_bytes(hardware)
        for name, content in files:
            (self.journal / name).write_bytes(content)

    async def actuator(
        self, points: Points | None = None, clock: Points | None = None
    ) -> ActuatorService:
        """Return an actuator whose calls `points` counts and whose clock is `clock`."""
        turned = clock or points or Points()

        def hand() -> DriverProcess:
            if self.inline:
                return InlineDriver(lambda: self.drivers(points), lambda _: None)
            return DriverProcess(lambda: self.drivers(points), self.config.deadline_s)

        def now() -> float:
            return time.monotonic() + turned.shift_s

        originals = CountedDisk(points, self.journal) if points else RestoreJournal(self.journal)
        return await actuator_of(self.config, hand, originals, BOOT, now, self.found)

    def look(self) -> None:
        """Find the devices once for all actuators, which saves a child at every point."""
        if not self.found:

            async def found() -> Sequence[Mapping[str, Any]]:
                made = await self.actuator()
                return [device.restorer.about for device in made.devices.values()]

            self.found = asyncio.run(found())

    def drivers(self, points: Points | None) -> Sequence[KnobDriver]:
        """Return the drivers as a driver's process finds them."""
        drivers = fake.discover(str(self.hardware))
        return [CountedDriver(d, points) for d in drivers] if points else drivers

    def restore(self) -> dict[str, str]:
        """Do as the next start does, and return what it could not restore."""
        self.look()
        try:
            return asyncio.run(self.replayed(None))
        finally:
            reap_all()

    async def replayed(self, points: Points | None) -> dict[str, str]:
        actuator = await self.actuator(points)
        left = await actuator.replay()
        for device in actuator.devices.values():
            await device.driver.close()
        return left

    def leave(self) -> dict[str, str]:
        """Take all devices out of their budgets, as an administrator can without an actuator."""

        async def left() -> dict[str, str]:
            actuator = await self.actuator()
            await actuator.replay()
            wrong = await actuator.leave()
            for device in actuator.devices.values():
                await device.driver.close()
            return wrong

        try:
            return asyncio.run(left())
        finally:
            reap_all()

    def start(self, points: Points, *, deadly: bool = True) -> int:
        """Start an actuator; if `deadly`, it is killed at the chosen point."""
        self.look()
        listener = listening(Path(self.config.socket))

        async def serving() -> None:
            actuator = await self.actuator(points if deadly else None, clock=points)
            await actuator.replay()
            server = await asyncio.start_unix_server(actuator.serve, sock=listener)
            await serve(actuator, server, ())

        def work() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            if deadly:
                points.adopt()
                count_sockets(points)
            asyncio.run(serving())

        child = fork(work)
        listener.close()
        return child

    def replay(self, points: Points) -> None:
        """Replay the journal in a process that is killed at the chosen point."""

        self.look()

        def work() -> None:
            points.adopt()
            count_sockets(points)
            asyncio.run(self.replayed(points))

        fork(work)
        reap_all()
        assert points.reached

    def play(self, script: tuple[Request, ...], points: Points) -> None:
        """Let an actuator serve a script until it is killed, at the latest at the end."""
        actuator = self.start(points)
        client = Client(self.config.socket, points, self.happens)
        client.play(script)
        os.kill(actuator, signal.SIGKILL)
        client.close()
        reap_all()
        assert points.reached

    def check_original(self) -> str:
        """Return what is not restored; empty if all is."""
        factory = {knob: known["default"] for knob, known in self.knobs.items()}
        if self.values != {**factory, **({fake.CEILING: LOWER} if self.lowered else {})}:
            return f"left at {self.values}"
        return "a journal is left" if self.journalled and not self.lowered else ""


class Client:
    """Sends requests to the actuator; its death ends the script."""

    def __init__(
        self, path: str, points: Points, happens: Callable[..., None] = lambda: None
    ) -> None:
        self._path = path
        self._happens = happens
        self._points = points
        self._connect()

    def _connect(self) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._line.settimeout(20.0)
        try:
            self._line.connect(self._path)
        except (
            ConnectionRefusedError
        ):  # killed before the connection: every request fails with this
            self._line.close()

    def play(self, script: tuple[Request, ...]) -> None:
        """Play a script; the connection stays open at its end, so that nothing ends the setting."""
        with suppress(ConnectionError):
            for request in script:
                if "shift_s" in request:
                    self._points.shift_s += request["shift_s"]
                elif "behind" in request:
                    self._happens(**request["behind"])
                elif "close" in request:
                    self.close()
                    self._connect()
                else:
                    self.ask(request)

    def close(self) -> None:
        self._line.close()

    def ask(self, request: Request) -> dict[str, Any]:
        if self._line.fileno() < 0:
            raise ConnectionRefusedError
        self._line.sendall(json.dumps(request).encode() + b"\n")
        heard = b""
        while not heard.endswith(b"\n"):
            chunk = self._line.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError
            heard += chunk
        answer: dict[str, Any] = json.loads(heard)
        return answer
