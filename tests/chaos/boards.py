"""A theatre whose device is a mounted board: its files are the hardware, and outlive everybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.driver import KnobDriver, Value
from agents.actuator.grants import Granted
from agents.devices.cpu.knobs import discover as discover_cpu
from agents.devices.jetson.knobs import discover as discover_jetson
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
"""The boards that are put through it, and whose driver finds them."""


def choices(driver: KnobDriver) -> tuple[dict[str, Value], ...]:
    """Return three settings of all knobs, none of them as the board was found.

    The governor `performance` takes no other preference than its own.
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


def grants(driver: KnobDriver) -> dict[str, tuple[Any, ...]]:
    """Return grants for everything that a device offers."""
    spans = driver.ranges().items()
    return {k: v if isinstance(v[0], str) else (v[0], v[-1]) for k, v in spans}


def script(device: str, settings: Sequence[Mapping[str, Value]]) -> tuple[Request, ...]:
    """Return two trials around a hold, a trial that is forgotten, and the end."""
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


@dataclass
class BoardTheatre(Theatre):
    """A mounted board in the place of the device in a file."""

    board: MountedBoard = field(kw_only=True)

    def __post_init__(self) -> None:
        self.discover = DRIVERS[self.board.name]
        self.board.do(reset=True)
        (self.driver,) = self.discover(str(self.board.root))
        super().__post_init__()
        self.config = type(self.config)(
            **{f: getattr(self.config, f) for f in self.config.__slots__ if f != "devices"},
            devices=(Granted(match="*", grant=grants(self.driver)),),
        )

    def renew_hardware(self) -> None:
        self.board.do(reset=True)
        for left in self.journal.iterdir():
            left.unlink()

    def drivers(self, points: Points | None) -> Sequence[KnobDriver]:
        """Return the driver; with points there is a boundary before each file that it writes, too."""
        drivers = self.discover(str(self.board.root))
        if points is None:
            return drivers
        count_calls(points, Path, {"write_text": "file write"})
        return [CountedDriver(driver, points) for driver in drivers]

    def check_original(self) -> str:
        altered = self.board.altered
        if altered:
            return f"left at {altered}"
        return "a journal is left" if self.journalled else ""
