"""A test stage whose device is a mounted board: its files are the hardware, and outlive all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.actuator.driver import KnobDriver, Value
from agents.devices.cpu.knobs import discover as discover_cpu
from agents.devices.jetson.knobs import discover as discover_jetson
from tests.actuation import all_granted
from tests.boards.inline import InlineBoard
from tests.boards.mounted import MountedBoard
from tests.chaos.points import CountedDriver, Points, count_calls
from tests.chaos.theatre import Request, Theatre, pass_s

Discover = Callable[[str], Sequence[KnobDriver]]
DRIVERS: Mapping[str, Discover] = {
    "orin": discover_jetson,
    "tx2": discover_jetson,
    "thor": discover_jetson,
    "xeon": discover_cpu,
    "arm": discover_cpu,
}
"""The tested boards, and the driver that finds each."""
UNCOUNTED = Points(-1)


def choices(driver: KnobDriver) -> tuple[dict[str, Value], ...]:
    """Return three settings of all knobs, none of them the board's original.

    The governor `performance` allows only one preference.
    """
    original = driver.read()
    picked: list[dict[str, Value]] = [{}, {}, {}]
    for knob, values in driver.ranges().items():
        others = [value for value in values if value != original[knob]]
        for number, setting in enumerate(picked):
            setting[knob] = others[number % len(others)]
    for setting in picked:
        if setting.get("cpu.governor") == "performance" and "cpu.epp" in setting:
            setting["cpu.epp"] = "performance"
    return tuple(picked)


def script(device: str, settings: Sequence[Mapping[str, Value]]) -> tuple[Request, ...]:
    """Return a script: two trials around a hold, a trial without an end, and the release."""
    tried, tried_next, held = settings
    acquire = {"verb": "acquire", "device": device, "lease_s": 5.0}
    hold = {"verb": "hold", "device": device, "setting": held, "valid_for_s": 1000.0}
    return (
        acquire,
        {"verb": "apply", "device": device, "setting": tried},
        hold,
        acquire,
        {"verb": "apply", "device": device, "setting": tried_next},
        pass_s(6.0),
        {"verb": "read", "device": device},
        {"verb": "release", "device": device},
    )


class OneLoad(CountedDriver):
    """A driver that is loaded once, for any root folder."""

    @property
    def epoch(self) -> str:
        self._points.tick("driver epoch")
        return "one load"


@dataclass
class BoardTheatre(Theatre):
    """A board as the device.

    Real processes need a mounted board. The restore after a kill runs on a board in this process, which is
    ten times faster; `root` shows the same files.
    """

    board: MountedBoard | InlineBoard = field(kw_only=True)

    def __post_init__(self) -> None:
        self.discover = DRIVERS[self.board.name]
        self.root = self.folder / "board"
        self.folder.mkdir()
        self.root.symlink_to(self.board.root)
        self.board.reset()
        (self.driver,) = self.discover(str(self.root))
        super().__post_init__()
        self.config = replace(self.config, devices=(all_granted(self.driver.ranges()),))

    def renew_hardware(self) -> None:
        self.board.reset()
        for left in self.journal.iterdir():
            left.unlink()

    def note(self, number: int) -> None:
        super().note(number)
        self.board.note(self.notes / str(number) / "state")

    def return_to(self, number: int) -> None:
        super().return_to(number)
        self.board.put(self.notes / str(number) / "state")

    @contextmanager
    def hastened(self) -> Iterator[None]:
        self.root.unlink()
        self.board = InlineBoard(self.board.name, self.folder / "inline", self.root)
        self.root.symlink_to(self.board.root)
        with self.board.at(), super().hastened():
            yield

    @property
    def values(self) -> dict[str, Any]:
        return {**self.board.altered}

    def drivers(self, points: Points | None) -> Sequence[KnobDriver]:
        """Return the driver; with `points`, each file that it writes is also a point."""
        if points:
            count_calls(points, Path, {"write_text": "file write"})
        return [OneLoad(d, points or UNCOUNTED) for d in self.discover(str(self.root))]

    def check_original(self) -> str:
        altered = self.board.altered
        if altered:
            return f"left at {altered}"
        return "a journal is left" if self.journalled else ""
