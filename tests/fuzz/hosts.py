"""Trees of CPUs and boards with empty, absurd, missing or unreadable files.

A tree has the files of a mounted board as plain files. The agent opens, measures and examines it, and
the actuator finds, grants, sets, holds and restores all its knobs.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agents.actuator.device import Peer
from agents.actuator.driver import KnobDriver, _described
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import RestoreJournal
from agents.devices.catalogue import open_device
from agents.devices.cpu import diagnosis as cpu_diagnosis
from agents.devices.cpu.knobs import discover as discover_cpu
from agents.devices.drm import diagnosis as drm_diagnosis
from agents.devices.drm.knobs import discover as discover_drm
from agents.devices.jetson import diagnosis as jetson_diagnosis
from agents.devices.jetson.knobs import discover as discover_jetson
from tests.actuation import Direct, actuator_of, all_granted
from tests.boards.gpus import ADDRESS, GPUS
from tests.boards.servers import SERVERS
from tests.boards.trees import NAMES, board
from tests.contracts.members import HandOf
from tests.fuzz.crashes import Crashes
from tuner.errors import TuningError

TEXTS: Mapping[str, bytes] = {
    "empty": b"",
    "a line end": b"\n",
    "zero": b"0\n",
    "negative": b"-1\n",
    "a word": b"<unsupported>\n",
    "a fraction": b"1.5e308\n",
    "not a number": b"nan\n",
    "huge": b"9" * 18 + b"\n",
    "past 64 bits": b"9" * 30 + b"\n",
    "past Python's digits": b"9" * 5000 + b"\n",
    "binary": b"\xff\xfe\x00\x80\n",
    "many": b"1 2 3 4 5 6 7 8 9\n" * 100,
}
WAYS = (*TEXTS, "missing", "unreadable", "a loop")
MOST_AT_ONCE = 4
PEER = Peer(1, 1, 0)
HELD_S, LEASE_S = 100.0, 5.0


@dataclass(frozen=True)
class Mutation:
    """One file of a tree, and what is wrong with it."""

    path: str
    way: str

    def __str__(self) -> str:
        return f"{self.path} is {self.way}"


class Tree:
    """A board's files in a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.root = name, folder / name
        nodes = board(name).nodes
        there = {path: node for path, node in nodes.items() if not node.refusal()}
        self.texts = {path.lstrip("/"): node.read() for path, node in there.items()}
        self.writable = [path.lstrip("/") for path, node in there.items() if node.take]
        for path in self.texts:
            self._put(path)
        for path, target in board(name).links.items():
            (self.root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path[1:]).symlink_to(target)

    def mutate(self, mutations: Sequence[Mutation]) -> None:
        for wrong in mutations:
            file = self.root / wrong.path
            if wrong.way in TEXTS:
                file.write_bytes(TEXTS[wrong.way])
                continue
            file.unlink()
            if wrong.way == "unreadable":  # also for root, which ignores modes
                file.mkdir()
            elif wrong.way == "a loop":
                file.symlink_to(file.name)

    def mend(self, mutations: Sequence[Mutation]) -> None:
        """Restore every file to the board's content."""
        for path in {*self.writable, *(wrong.path for wrong in mutations)}:
            self._put(path)

    def _put(self, path: str) -> None:
        file = self.root / path
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        elif file.is_symlink():
            file.unlink()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self.texts[path])


class Hosts:
    """All trees, and the cases over them."""

    def __init__(self, folder: Path, crashes: Crashes) -> None:
        self._folder, self._crashes = folder, crashes
        self._trees = [Tree(name, folder / "trees") for name in NAMES]

    def cases(self, rng: random.Random) -> Iterator[Callable[[], None]]:
        """Yield every kind of file with every fault, then several faults at once."""
        places: dict[str, list[tuple[Tree, str]]] = {}
        for tree in self._trees:
            for path in tree.texts:
                places.setdefault(re.sub(r"\d+", "#", path), []).append((tree, path))
        singles = [(kind, way) for kind in places for way in WAYS]
        rng.shuffle(singles)
        for kind, way in singles:
            tree, path = rng.choice(places[kind])
            yield partial(self._case, tree, [Mutation(path, way)], rng.random() < 0.5)
        while True:
            tree = rng.choice(self._trees)
            paths = rng.sample([*tree.texts], min(len(tree.texts), rng.randint(2, MOST_AT_ONCE)))
            wrong = [Mutation(path, rng.choice(WAYS)) for path in paths]
            yield partial(self._case, tree, wrong, rng.random() < 0.5)

    def _case(self, tree: Tree, wrong: Sequence[Mutation], later: bool) -> None:
        """Try a tree with its faults from the start, or only after it was set."""
        when = "once it is set" if later else "from the start"
        name = f"{tree.name}, {when}: {'; '.join(map(str, wrong))}"
        change = partial(tree.mutate, wrong)
        with self._crashes.case(name):
            if not later:
                change()
            for discover in (discover_cpu, discover_jetson, discover_drm):
                with self._crashes.contained(f"actuator: {name}"):
                    found: Sequence[Any] = discover(str(tree.root))
                    for driver in (d for d in found if not isinstance(d, Mapping)):
                        self._act(f"actuator: {name}", driver, change if later else lambda: None)
            other = f"drm:{ADDRESS}" if tree.name in GPUS else "jetson"
            for spec in ("cpu",) if tree.name in SERVERS else ("cpu", other):
                with self._crashes.contained(f"agent: {name}"):
                    measure(spec, tree.root)
            for examine in (d.examine for d in (cpu_diagnosis, drm_diagnosis, jetson_diagnosis)):
                with self._crashes.contained(f"doctor: {name}"):
                    list(examine(tree.root))
        tree.mend(wrong)

    def _act(self, name: str, driver: KnobDriver, change: Callable[[], None]) -> None:
        about = _described(driver)
        if "absent" in about:
            return
        config = ActuatorConfig(devices=(all_granted(about["ranges"]),))
        journal = self._folder / "journal"
        shutil.rmtree(journal, ignore_errors=True)
        journal.mkdir()
        made = actuator_of(
            config, lambda: HandOf(driver), RestoreJournal(journal), "boot", lambda: 0.0, [about]
        )
        actuator = Direct(made)
        setting = {knob: values[0] for knob, values in about["ranges"].items() if values}
        for step in (
            actuator.replay,
            partial(actuator.acquire, PEER, driver.uuid, LEASE_S),
            partial(actuator.apply, PEER, driver.uuid, setting),
            change,
            partial(actuator.read, PEER, driver.uuid),
            partial(actuator.hold, PEER, driver.uuid, setting, HELD_S),
            actuator.tick,
            partial(actuator.release, PEER, driver.uuid),
            actuator.close,
        ):
            with self._crashes.contained(name):
                step()


def measure(spec: str, root: Path) -> None:
    """Open a device and measure one window, like an agent. Raises TuningError."""
    side = open_device(spec, seed=0, state_dir=None, root=root)
    try:
        window = side.meter.start()
        try:
            window.read()
        finally:
            with suppress(TuningError):
                window.stop()
    finally:
        side.close()
