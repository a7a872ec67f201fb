"""Two fake devices, an actuator without processes, and a clock one can turn."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.device import Peer
from agents.actuator.driver import Value
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import COPIES, RestoreJournal
from agents.devices.fake import knobs as fake
from tests.actuation import Direct, DirectHand, actuator_of

GPU, OTHER = "GPU-1", "GPU-2"
CLOCK, MEMORY, LIMIT = "gpu.clock_mhz", "gpu.mem_clock_mhz", "gpu.power_limit_w"
FACTORY = {CLOCK: None, MEMORY: None, LIMIT: 400}
TRIED = {CLOCK: 810, LIMIT: 250}
HELD = {CLOCK: 870, LIMIT: 300}
ME, YOU, ROOT = Peer(1, 1, 7), Peer(2, 2, 7), Peer(3, 3, 0)


class FullDisk(RestoreJournal):
    """A journal's disk; it can be full, and `after` runs when a write that contains its text has ended."""

    full = False
    after: tuple[str, Callable[[], None]] | None = None

    def write(self, path: Path, content: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, content)
        if self.after and self.after[0].encode() in content:
            self.after[1]()


class Odd(DirectHand):
    """A faulty driver.

    `raises` has the error of each call for a device, `unplugged` the devices that it does not find,
    `untold` a knob that it leaves out, and `late` the number of its children that the kernel still
    holds.
    """

    untold = ""
    late = 0
    closed = 0

    def __init__(
        self, hardware: Path, raises: Mapping[tuple[str, str], Exception], unplugged: set[str]
    ) -> None:
        super().__init__(hardware)
        self.raises = raises
        self.unplugged = unplugged

    @property
    def lingering(self) -> int:
        return self.late

    async def renew(self) -> None:
        self.closed += 1

    async def close(self) -> None:
        pass

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        if (verb, uuid) in self.raises:
            raise self.raises[verb, uuid]
        reply = await super().ask(verb, uuid, *details)
        if verb == "describe":
            return [about for about in reply if about["uuid"] not in self.unplugged]
        if verb == "read":
            told = [{k: v for k, v in part.items() if k != self.untold} for part in reply[:2]]
            return [*told, *reply[2:]]
        return reply


@dataclass
class Bench:
    folder: Path
    terms: Mapping[str, Any] = field(default_factory=dict)
    hold_s: float = 604800.0
    now: float = 0.0
    boot: str = "boot 1"
    raises: dict[tuple[str, str], Exception] = field(default_factory=dict)
    unplugged: set[str] = field(default_factory=set)
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: fake.A100)

    def __post_init__(self) -> None:
        self.hardware = self.folder / "hardware.json"
        self.journal = self.folder / "journal"
        self.journal.mkdir(parents=True)
        fake.save(self.hardware, fake.blank(GPU, OTHER, knobs=self.knobs))
        self.disk = FullDisk(self.journal)
        self.start().replay()

    def start(self) -> Direct:
        """Return the actuator as after a fresh start of the process."""
        grant = {CLOCK: (600, 1410), LIMIT: (150, 350)}
        granted = Granted(match="GPU-*", **{"grant": grant, **self.terms})
        config = ActuatorConfig(hold_s=self.hold_s, devices=(granted,))
        self.hand = Odd(self.hardware, self.raises, self.unplugged)
        made = actuator_of(config, lambda: self.hand, self.disk, self.boot, lambda: self.now)
        self.actuator = Direct(made)
        return self.actuator

    @property
    def values(self) -> dict[str, Any]:
        return dict(fake.load(self.hardware)["devices"][GPU]["values"])

    @property
    def copies(self) -> list[Path]:
        return [self.journal / f"{GPU}{copy}" for copy in COPIES]

    @property
    def record(self) -> Path:
        return self.copies[0]

    def change(self, **changes: object) -> None:
        """Act as another program: set the device's values, its faults, or the driver's epoch."""
        state = fake.load(self.hardware)
        if "epoch" in changes:
            state["epoch"] = changes["epoch"]
        for name in changes.keys() - {"epoch"}:
            state["devices"][GPU][name].update(changes[name])
        fake.save(self.hardware, state)

    def trial(self, setting: Mapping[str, Any] = TRIED, lease_s: float = 10.0) -> None:
        self.actuator.acquire(ME, GPU, lease_s)
        self.actuator.apply(ME, GPU, setting)

    def hold(self, valid_for_s: float = 1000.0) -> None:
        self.actuator.hold(ME, GPU, HELD, valid_for_s)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.actuator.tick()

    def searches(self, seconds: float) -> None:
        """Let the actuator search for devices, after this delay, until it has found all of them."""

        async def searched() -> None:
            stop: list[int] = []
            async with asyncio.timeout(20.0), asyncio.TaskGroup() as tasks:
                search = tasks.create_task(self.actuator.inner.search(stop))
                await asyncio.sleep(0)
                self.now += seconds
                await search
                stop.append(1)

        asyncio.run(searched())

    def level(self) -> str:
        return str(self.actuator.read(YOU, GPU)["level"])


def capped(tmp_path: Path) -> Bench:
    grant = {CLOCK: (600, 1410), LIMIT: (150, 250)}
    terms = {"grant": grant, "failsafe": {LIMIT: 250}, "original": {CLOCK: 1410}}
    return Bench(tmp_path / "b", terms)
