"""An actuator over a board in this process, with an event at one of its calls.

A CPU goes offline or comes online, the actuator dies, power fails, or a file refuses, each at a counted
point. Points are the calls of a driver, each file that it writes, and the calls of the disk. A dead
actuator leaves the state of kernel and disk; its successor is another object.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agents.actuator.device import Peer
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import COPIES
from agents.devices.cpu.knobs import discover as discover_cpu
from agents.devices.drm.knobs import discover as discover_drm
from agents.devices.jetson.knobs import discover as discover_jetson
from tests.actuation import Direct, actuator_of, all_granted, finished
from tests.boards.inline import InlineBoard
from tests.chaos.disks import VolatileDisk
from tests.chaos.points import InlineDriver
from tests.chaos.theatre import BOOT
from tuner.errors import TuningError

PEER = Peer(1, 1, 7)
LATER_S = 120.0
"""Longer than any wait before the actuator looks again."""
Step = tuple[str, tuple[Any, ...]]
"""A verb of the wire and what it is asked with."""


class Death(BaseException):
    """The actuator dies at this point."""


@dataclass
class Happening:
    """The points and their events: `event` at one, the actuator's death or a file's refusal at another."""

    event_at: int = 0
    event: Callable[[], None] = lambda: None
    end_at: int = 0
    fault: int = 0
    count: int = 0
    over: bool = False
    labels: list[str] = field(default_factory=list)

    def tick(self, label: str = "disk") -> int:
        """Count a point; return the error of a file there, if any. Raises Death."""
        if self.over:
            return 0
        self.count += 1
        self.labels.append(label)
        if self.count == self.event_at:
            self.event()
        if self.count == self.end_at:
            if not self.fault:
                raise Death
            return self.fault
        return 0


@dataclass
class Stage:
    """A board, a journal, a settable clock, and the current actuator.

    `lost` has the values of a GPU's files after it lost its settings by itself; nothing restores those.
    """

    board: InlineBoard
    journal: Path
    now: float = 0.0
    unread: int = 0
    deaf: int = 0
    slept_s: float = 0.0
    lost: Mapping[str, bytes] = field(default_factory=dict)
    happening: Happening = field(default_factory=Happening)

    def __post_init__(self) -> None:
        jetson = "orin" in self.board.board.name
        cpus = discover_jetson if jetson else discover_cpu
        self.discover: Callable[[str], Any] = discover_drm if self.board.board.gpus else cpus
        (self.device,) = cast("list[Any]", self.discover(str(self.board.root)))
        self.config = ActuatorConfig(
            group="nobody-has-this-group",
            agent_grace_s=20.0,
            devices=(all_granted(self.device.ranges()),),
        )
        self.start()

    def start(self) -> None:
        """Start an actuator as after another's end: replay the journal and make the grants."""
        self.disk = VolatileDisk(self, self.journal, torn=False)
        found = lambda: self.discover(str(self.board.root))  # noqa: E731
        hand = lambda: InlineDriver(found, self.called)  # noqa: E731
        made = actuator_of(self.config, hand, self.disk, BOOT, lambda: self.now)
        self.actuator = Direct(made)
        for device in self.actuator.inner.devices.values():
            device.restorer.suspended_s = lambda: self.slept_s
        self.actuator.replay()

    def called(self, label: str) -> None:
        """Count a call of the driver; a fault there is that of the first file that it reads."""
        self.unread = self.happening.tick(label)

    def hook(self, kind: str, name: str) -> int:
        """Return a file's error in place of the board's answer."""
        if kind == "write":
            return self.happening.tick(f"write {name}")
        error, self.unread = self.unread or self.deaf, 0
        return error

    def tick(self) -> None:
        """Count a call of the disk."""
        if error := self.happening.tick("disk"):
            raise OSError(error, os.strerror(error))

    def ask(self, verb: str, *details: Any) -> dict[str, Any]:  # noqa: ANN401
        answer: dict[str, Any] = getattr(self.actuator, verb)(PEER, self.device.uuid, *details)
        return answer

    def play(self, steps: Sequence[Step]) -> None:
        """Send an agent's requests in order; refusals are ignored."""
        for verb, details in steps:
            if verb == "pass":
                self.settle(*details)
            elif verb == "start":
                self.start()
            else:
                with suppress(TuningError):
                    self.ask(verb, *details)

    def settle(self, seconds: float = LATER_S, times: int = 3) -> None:
        """Let time pass, and run the actuator's periodic tasks."""
        self.deaf = 0
        for gpu in self.board.board.gpus:
            gpu.busy = 0
        for _ in range(times):
            self.now += seconds
            self.search()
            self.actuator.tick()

    def search(self) -> None:
        """Search for missing devices, as the actuator does."""
        service = self.actuator.inner
        if service.absent or service.missing:
            for device in finished(service.find()):
                finished(device.replay())
                service.adopt([device])

    def lose_power(self) -> None:
        self.disk.lose_power(self.journal)

    def suspend(self) -> None:
        """Sleep and wake up."""
        self.slept_s += 100.0
        self.board.board.resume()
        self.note_lost()

    def reload(self) -> None:
        """Reload the clocks' driver."""
        self.board.reload()
        self.note_lost()

    def note_lost(self) -> None:
        self.lost = self.board.board.snapshot() if self.board.board.gpus else {}

    def reset_gpu(self, error: int = 0) -> None:
        """Reset a GPU, whose files answer an error until time passes."""
        for gpu in self.board.board.gpus:
            gpu.lose()
            gpu.busy = error
        self.note_lost()

    def deafen(self) -> None:
        """Let all reads fail until time passes."""
        self.deaf = errno.EIO

    def nap(self) -> None:
        """Let a GPU sleep until it is read."""
        for gpu in self.board.board.gpus:
            gpu.sleep()
        self.note_lost()

    @property
    def journalled(self) -> bool:
        return any(path.suffix in COPIES for path in self.journal.iterdir())

    @property
    def waiting(self) -> Mapping[str, str]:
        """The files that the actuator still has to restore, by its status."""
        waiting: Mapping[str, str] = self.ask("read")["waiting"]
        return {name.removeprefix(str(self.board.root)): state for name, state in waiting.items()}

    def wrong(self) -> str:
        """Return what is not restored, or never will be; empty if all is well."""
        with suppress(TuningError):  # a device that was absent at its driver's start is lost again
            self.ask("read")
        lost = {p: text.decode().strip() for p, text in self.lost.items()}
        altered = self.board.board.altered.items()
        files = {p: v for p, v in altered if not p.endswith("/online") and lost.get(p) != v}
        said = self.ask("read")
        if left := files.keys() - self.waiting.keys():
            return f"left at { {path: files[path] for path in left} }"
        if said["paused"] or said["trouble"]:
            return f"{said['paused']} {said['trouble']}".strip()
        return "a journal is left" if self.journalled and not self.board.cpus.offline else ""


def play_once(
    stage: Stage, steps: Sequence[Step], happening: Happening, end: str, offline: Sequence[int]
) -> str:
    """Play steps with their events, undo the events, and return what is wrong then.

    `end`: `kill`, `power cut`, `fault`, `refusal` or nothing. `offline`: the CPUs that are offline from the
    beginning.
    """
    with stage.board.at(stage.hook):
        return _played(stage, steps, happening, end, offline)


def _played(
    stage: Stage, steps: Sequence[Step], happening: Happening, end: str, offline: Sequence[int]
) -> str:
    stage.board.renew()
    for left in stage.journal.iterdir():
        left.unlink()
    stage.board.turn(offline, online=False)
    stage.happening, stage.now, stage.slept_s = Happening(over=True), 0.0, 0.0
    stage.lost = {}
    stage.start()
    stage.happening = happening
    happening.fault = {"fault": errno.EIO, "refusal": errno.EINVAL}.get(end, 0)
    try:
        stage.play(steps)
    except Death:
        if end == "power cut":
            stage.lose_power()
        happening.over = True
        stage.start()
    happening.over = True
    stage.settle()
    if problem := stage.wrong():
        return f"before the CPUs are back: {problem}"
    stage.board.turn(stage.board.cpus.offline, online=True)
    if happening.end_at % 2:
        stage.start()
    stage.settle()
    return stage.wrong()
