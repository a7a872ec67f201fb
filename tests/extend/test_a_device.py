"""A device of your own: one file (`twoclock.py` beside this), and an entry point that names it.

In the `pyproject.toml` of your package:

    [project.entry-points."jouletune.devices"]
    twoclock = "twoclock:open_twoclock"

Installed beside jouletune it is opened as `twoclock:FOLDER`, passes the contracts of every device, and
is tuned like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device, specs_in
from agents.target.side import Side
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import Later, MeterContract
from tests.extend import twoclock
from tests.integration.stage import stage
from tests.packages import install
from tests.processes import until

ENTRY_POINTS = "[jouletune.devices]\ntwoclock = twoclock:open_twoclock\n"
JOULES = {600: 3.0, 900: 2.0, 1200: 4.0}
"""Joules per item by the core's clock; the memory's clock adds 1 J at 800 MHz and 2 J at 1600 MHz."""


class Board:
    """The hardware: four files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._items = self._energy_uj = 0
        for name, value in twoclock.SPACE.default.items():
            (folder / name).write_text(str(value))
        self.work(0)

    def clock_mhz(self, name: str) -> int:
        return int((self.folder / f"{name}.clock_mhz").read_text() or 0)

    def work(self, items: int) -> None:
        core, memory = self.clock_mhz("core"), self.clock_mhz("memory")
        if core and memory:  # empty while it is being written
            self._items += items
            self._energy_uj += round(1e6 * items * (JOULES[core] + memory / 800))
        for name, count in (("energy_uj", self._energy_uj), ("items", self._items)):
            (self.folder / "new").write_text(str(count))
            (self.folder / "new").replace(self.folder / name)


@contextmanager
def running(board: Board) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.002):
            board.work(1)

    worker = threading.Thread(target=run)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


@pytest.fixture
def board(site: Path) -> Board:
    install(site, "twoclock", ENTRY_POINTS, Path(twoclock.__file__).read_text())
    return Board(site / "board")


@pytest.fixture
def side(board: Board) -> Iterator[Side]:
    opened = open_device(f"twoclock:{board.folder}", seed=0, state_dir=None)
    yield opened
    opened.close()


@pytest.fixture
def later(board: Board) -> Later:
    return lambda: board.work(50)


class TestItsClocks(SettableContract):
    pass


class TestItsCounters(MeterContract):
    pass


def test_it_may_be_one_device_of_several_in_a_target(board: Board) -> None:
    assert specs_in(f"cpu+twoclock:{board.folder}") == ["cpu", f"twoclock:{board.folder}"]


@pytest.mark.slow
def test_a_board_is_tuned_to_the_least_energy_held_there_and_restored(board: Board) -> None:
    with running(board), stage(board.folder.parent) as played:
        (played.folder / "root").mkdir()
        (played.folder / "root/board").symlink_to(board.folder)
        played.start_tuner()
        played.start_agent("twoclock:/board")
        study = played.create(
            objective="energy_j", terms={"trials": 5, "window_s": 0.6, "max_window_s": 2.0}
        )
        played.await_phase(study, "holding")
        (row,) = played.call("GET", f"/studies/{study}")["plan"]["rows"]
        assert row["setting"] == {"core.clock_mhz": 900, "memory.clock_mhz": 800}
        until(
            lambda: (board.clock_mhz("core"), board.clock_mhz("memory")) == (900, 800),
            lambda: f"not held: {played.log('agent')}",
        )
        played.call("POST", f"/studies/{study}/stop", {})
        until(
            lambda: (board.clock_mhz("core"), board.clock_mhz("memory")) == (1200, 1600),
            lambda: f"not put back: {played.log('agent')}",
        )
