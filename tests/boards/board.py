"""A mounted machine: its files, what they do together, and how they go back to how they began."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.boards.kernel import Counter, Limits, Node, fixed
from tests.boards.machine import Machine

CPUFREQ = "/sys/devices/system/cpu/cpufreq"


@dataclass
class Board:
    """A mounted machine. `reset` puts every file back to how it began; `faults` break files by path.

    `links` are symbolic links, path to target.

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

    def __post_init__(self) -> None:
        self.begin = self.snapshot()

    def snapshot(self) -> dict[str, bytes]:
        """Return what the files say that can be written."""
        return {path: node.read() for path, node in self.nodes.items() if node.take}

    def cap(self, most: int) -> None:
        """Clamp every clock of a CPU without a word, as heat or the BIOS does; 0: no more."""
        for limits in self.state:
            if isinstance(limits, Limits):
                limits.cap = most

    def restart_counters(self) -> None:
        """Let every energy counter begin anew at 0, as after a resume."""
        for counter in self.state:
            if isinstance(counter, Counter):
                counter.restart()

    def reset(self) -> None:
        self.faults.clear()
        for limits in self.state:
            vars(limits).update(self.originals[id(limits)])

    def keep(self, *state: object) -> Board:
        """Note what holds the state of the files, as it is now."""
        self.state = state
        self.originals = {id(s): dict(vars(s)) for s in state}
        return self

    @property
    def altered(self) -> dict[str, str]:
        """What differs from how it began."""
        now = self.snapshot()
        return {p: now[p].decode().strip() for p in now if now[p] != self.begin[p]}


def policies(
    limits: Sequence[Limits],
    cpus: int,
    extra: Callable[[Limits], Mapping[str, Node]],
    driver: str = "fake",
) -> dict[str, Node]:
    """Return the cpufreq folders of CPUs that share policies evenly."""
    nodes: dict[str, Node] = {}
    each = cpus // len(limits)
    for number, limit in enumerate(limits):
        folder = f"{CPUFREQ}/policy{number * each}"
        names = " ".join(str(number * each + n) for n in range(each))
        nodes |= limit.nodes(folder, "scaling_min_freq", "scaling_max_freq")
        nodes |= {f"{folder}/{name}": node for name, node in extra(limit).items()}
        nodes |= {
            f"{folder}/scaling_driver": fixed(driver),
            f"{folder}/affected_cpus": fixed(names),
            f"{folder}/related_cpus": fixed(names),
            f"{folder}/cpuinfo_min_freq": fixed(limit.least),
            f"{folder}/cpuinfo_max_freq": Node(partial(getattr, limit, "top")),
            f"{folder}/scaling_cur_freq": Node(partial(getattr, limit, "runs")),
        }
        if limit.table:
            nodes[f"{folder}/scaling_available_frequencies"] = fixed(
                " ".join(map(str, limit.table))
            )
    return nodes
