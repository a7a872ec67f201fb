"""A mounted machine: its files, their joint behaviour, and their reset."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.boards.cards import Gpu
from tests.boards.cpufreq import CPUFREQ, Cpus
from tests.boards.kernel import Counter, Limits, Node
from tests.boards.machine import Machine

PLAIN = (int, float, str, frozenset)
"""The changing part of a board's state."""


@dataclass
class Board:
    """A mounted machine. `reset` puts every file back to how it began; `faults` break files by path.

    `links` are symbolic links, path to target. What is below `moving` is new in each load of its driver.

    A fault is `refuse` (EIO), `readonly` (EROFS), `locked` (EACCES: what the BIOS has locked), `nodata`
    (ENODATA), `gone` (ENOENT), or `{"stuck": TEXT}`: what is written there has no effect and TEXT is told.
    `links` are symbolic links, path to target.
    """

    name: str
    machine: Machine
    nodes: dict[str, Node]
    links: dict[str, str] = field(default_factory=dict)
    faults: dict[str, Any] = field(default_factory=dict)
    state: tuple[Any, ...] = ()
    moving: str = CPUFREQ

    def __post_init__(self) -> None:
        self.begin = self.snapshot()

    def snapshot(self) -> dict[str, bytes]:
        """Return the contents of the writable files, as they would be without faults."""
        return {path: node.kept for path, node in self.nodes.items() if node.take}

    def cap(self, most: int) -> None:
        """Silently clamp every clock of a CPU, as heat or the BIOS does; 0 ends it."""
        for limits in self.state:
            if isinstance(limits, Limits):
                limits.cap = most

    @property
    def gpus(self) -> list[Gpu]:
        """The cards of AMD and Intel."""
        return [one for one in self.state if isinstance(one, Gpu)]

    @property
    def loads(self) -> int:
        """The number of loads of the cpufreq driver."""
        return sum(one.loads for one in self.state if isinstance(one, (Cpus, Gpu)))

    def reload(self) -> None:
        """Unload the cpufreq driver and load it again: every policy is a new one, at its defaults."""
        for cpus in self.state:
            if isinstance(cpus, Cpus):
                cpus.load()
                self._begin_anew(cpus.driven)
        for gpu in self.gpus:
            gpu.load()

    def resume(self) -> None:
        """Wake up: ceilings of CPU clocks are at their maximum, as users report; counters restart."""
        for cpus in self.state:
            if isinstance(cpus, Cpus):
                self._begin_anew([one for one in cpus.driven if isinstance(one, Limits)])
        for gpu in self.gpus:
            gpu.lose()
        self.restart_counters()

    def restart_counters(self) -> None:
        """Restart every energy counter at 0, as after a resume."""
        for counter in self.state:
            if isinstance(counter, Counter):
                counter.restart()

    def reset(self) -> None:
        self.faults.clear()
        loads = {id(one): one.loads for one in self.state if isinstance(one, (Cpus, Gpu))}
        self._begin_anew(self.state)
        for one in self.state:
            if id(one) in loads:
                one.loads = loads[id(one)]

    def note(self, file: Path) -> None:
        """Write the state of the files to a file."""
        plain = [{k: v for k, v in vars(s).items() if isinstance(v, PLAIN)} for s in self.state]
        file.write_bytes(pickle.dumps(plain))

    def put(self, file: Path) -> None:
        """Read the state of the files that a board of the same name has written."""
        for one, then in zip(self.state, pickle.loads(file.read_bytes()), strict=True):
            vars(one).update(then)

    def _begin_anew(self, state: Iterable[object]) -> None:
        for one in state:
            vars(one).update(self.originals[id(one)])

    def keep(self, *state: object) -> Board:
        """Record the present objects with the files' state."""
        self.state = state
        self.originals = {id(s): dict(vars(s)) for s in state}
        return self

    @property
    def altered(self) -> dict[str, str]:
        """The files whose content differs from the beginning."""
        now = self.snapshot()
        return {p: now[p].decode().strip() for p in now if now[p] != self.begin[p]}
