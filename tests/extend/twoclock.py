"""A complete device: a board with two clocks.

Each clock is a file to write megahertz to; two more files count the items done and the microjoules used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agents.target.side import Side
from tuner.core import InvalidInput, Knob, Metric, Reading, Role, Scope, Setting, Space

SPACE = Space(
    (
        Knob("core.clock_mhz", (600, 900, 1200), 1200, role=Role.CORE_CLOCK),
        Knob("memory.clock_mhz", (800, 1600), 1600, role=Role.MEMORY_CLOCK),
    )
)


def open_twoclock(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `twoclock:FOLDER`, a path from the file system's root."""
    board = root / rest.lstrip("/")
    if not rest or not board.is_dir():
        raise InvalidInput(f"there is no board {rest!r}", hint="write twoclock:FOLDER")
    return Side(
        name="twoclock",
        kind="twoclock",
        board="two-clock board",
        version="1",
        space=SPACE,
        metrics=(Metric("energy_j", scope=Scope.MODULE), Metric("throughput_per_s")),
        actuator=Clocks(board),
        meter=Counters(board),
    )


class Clocks:
    """Sets both clocks."""

    def __init__(self, board: Path) -> None:
        self._board = board

    def read(self) -> Setting:
        return {knob.name: int((self._board / knob.name).read_text()) for knob in SPACE.knobs}

    def apply(self, setting: Setting) -> None:
        SPACE.check({**self.read(), **setting})
        for name, value in setting.items():
            (self._board / name).write_text(str(value))


class Counters:
    """Measures the items done and the energy used."""

    def __init__(self, board: Path) -> None:
        self._board = board

    def start(self) -> Counted:
        return Counted(self._board)


class Counted:
    """One window: totals since its start, from which the agent computes J per item."""

    def __init__(self, board: Path) -> None:
        self._board = board
        self._before = self._counts()
        self._final: Reading | None = None

    def read(self) -> Reading:
        now = self._counts()
        totals = {name: now[name] - before for name, before in self._before.items()}
        return self._final or Reading(totals)

    def stop(self) -> Reading:
        self._final = self.read()
        return self._final

    def _counts(self) -> Mapping[str, float]:
        items, energy_uj = (
            int((self._board / name).read_text()) for name in ("items", "energy_uj")
        )
        return {"items": float(items), "energy_j": energy_uj / 1e6}
