"""Studies with siblings and without: which are left out, which are wrong, and what each captures."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from tests.bench.contest.replay import Task, TaskResult, studied
from tests.bench.contest.runs import settle_in
from tests.bench.transfer.families import Known
from tests.bench.transfer.fleet import Fleet
from tests.bench.transfer.judge import BUDGETS
from tuner.core import NO_MEMORY, Closeness, Past, Posterior, Sibling, SiblingMemory, Worth
from tuner.memory.selection import MOST_SIBLINGS, trust

Item = TypeVar("Item")
Made = TypeVar("Made")
Pairs = list[tuple[str, TaskResult, TaskResult]]

LEFT_OUT: dict[str, Callable[[Known], str]] = {
    "device": lambda known: known.declared.board,
    "workload": lambda known: known.declared.workload,
}
"""What all studies of are left out of the database, for a new study of one of them."""


@dataclass(frozen=True, slots=True)
class Played:
    """A surface with its finished study without siblings."""

    known: Known
    result: TaskResult
    past: Past


@dataclass(frozen=True)
class Player:
    """Plays studies, in processes of their own if there are several.

    `slack`, `noise` and `seed` are those of all.
    """

    slack: float
    noise: float
    seed: int
    processes: int

    def cold(self, known: Sequence[Known]) -> list[Played]:
        """Play a study without siblings on each surface that has something to save."""
        results = self._each(_played, [self._task(k, NO_MEMORY) for k in known])
        return [Played(k, *result) for k, result in zip(known, results, strict=True)]

    def warm(self, played: Sequence[Played], memories: Sequence[SiblingMemory]) -> Pairs:
        """Play each study again with the siblings of its memory."""
        tasks = [self._task(p.known, m) for p, m in zip(played, memories, strict=True)]
        results = self._each(_played, tasks)
        return [
            (p.known.problem.source, p.result, warm)
            for p, (warm, _) in zip(played, results, strict=True)
        ]

    def _task(self, known: Known, memory: SiblingMemory) -> Task:
        return Task(
            tuner="ours",
            problem=known.problem,
            slack=self.slack,
            seed=self.seed,
            budgets=BUDGETS,
            noise=self.noise,
            memory=memory,
        )

    def _each(self, play: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        if self.processes == 1:
            return [play(item) for item in items]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            self.processes, mp_context=context, initializer=settle_in
        ) as executor:
            return list(executor.map(play, items, chunksize=2))


def _played(task: Task) -> tuple[TaskResult, Past]:
    return studied(task)


def fleet_of(played: Sequence[Played]) -> Fleet:
    """Return a database with finished studies and their posteriors."""
    fleet = Fleet()
    for one in played:
        fleet.finish(one.known, one.past)
    fleet.remember()
    return fleet


def left_out(
    fleet: Fleet, played: Sequence[Played], label: Callable[[Known], str]
) -> list[SiblingMemory]:
    """Return the memory of a new study of each surface, all studies of its label left out."""
    memories: dict[int, SiblingMemory] = {}
    for name in dict.fromkeys(label(one.known) for one in played):
        own = [(n, one) for n, one in enumerate(played) if label(one.known) == name]
        with _without(fleet, [one for _, one in own]):
            for n, one in own:
                memories[n] = fleet.offered(one.known, one.past)
    return [memories[n] for n in range(len(played))]


@contextmanager
def _without(fleet: Fleet, own: Sequence[Played]) -> Iterator[None]:
    """Delete studies for a while."""
    posteriors = dict(latest(fleet, own))
    fleet.without([one.known for one in own])
    yield
    for one in own:
        fleet.finish(one.known, one.past)
        if (posterior := posteriors.get(str(one.known.declared))) is not None:
            fleet.store.posteriors.put(posterior, fleet.memory.now())


def latest(fleet: Fleet, played: Sequence[Played]) -> Iterator[tuple[str, Posterior]]:
    """Yield the posterior of each study that left one."""
    for one in played:
        name = str(one.known.declared)
        device = fleet.store.devices.get(name)
        near = fleet.store.posteriors.near(device, len(played))
        yield from ((name, p) for ref, p in near if ref.study == name)


def wrong(fleet: Fleet, played: Sequence[Played], seed: int) -> dict[str, list[SiblingMemory]]:
    """Return memories of siblings that are wrong, each trusted as the fleet's honest ones are.

    Shuffled: the values of its like studies, dealt to other settings. Misdescribed: studies of other
    boards and workloads under this one's labels. Adversarial: nothing ever comes near a limit, and
    the further from the baseline the more is saved.
    """
    posteriors = dict(latest(fleet, played))
    trusted = trust({**fleet.store.posteriors.worth()})
    same = Closeness.BOARD_AND_WORKLOAD
    trusted[same] = max(trusted.values())
    made: dict[str, list[SiblingMemory]] = {"shuffled": [], "misdescribed": [], "adversarial": []}
    for one in played:
        declared, name = one.known.declared, str(one.known.declared)
        rng = Random(f"{seed}/{name}")
        own = [
            p
            for other in played
            if other.known.declared.kind == declared.kind
            and str(other.known.declared) != name
            and (p := posteriors.get(str(other.known.declared))) is not None
        ]
        strange = [p for p in own if declared.board != p.board and declared.workload != p.workload]
        for kind, siblings in (
            ("shuffled", [shuffled(p, rng) for p in own]),
            ("misdescribed", strange),
            ("adversarial", [adversarial(p) for p in own]),
        ):
            chosen = tuple(Sibling(p, same) for p in siblings[:MOST_SIBLINGS])
            made[kind].append(SiblingMemory(f"{kind} for {name}", chosen, trusted))
    return made


def shuffled(posterior: Posterior, rng: Random) -> Posterior:
    """Return a posterior whose values belong to other settings."""
    order = list(range(1, len(posterior.points)))
    rng.shuffle(order)
    places = [0, *order]
    means = tuple(tuple(row[n] for n in places) for row in posterior.means)
    return replace(posterior, means=means)


def adversarial(posterior: Posterior) -> Posterior:
    """Return a posterior that claims savings far from the baseline, and no effect on any limit."""
    far = [math.hypot(*(v for v in p if isinstance(v, float))) for p in posterior.points]
    most = max(*far, 1e-9)
    claims = tuple(-0.5 * f / most for f in far)
    nothing = tuple(0.0 for _ in far)
    none = tuple(tuple(0.0 for _ in row) for row in posterior.means)
    return replace(
        posterior,
        means=(claims, *(nothing for _ in posterior.means[1:])),
        directions=tuple(none for _ in posterior.directions),
    )


def shown(worths: dict[Closeness, Worth]) -> dict[str, dict[str, float]]:
    """Return worths and the trust that follows from them, by closeness."""
    trusted = trust(worths)
    return {
        str(c): {"worth": round(w.mean, 3), "studies": w.studies, "trust": round(trusted[c], 3)}
        for c, w in worths.items()
    }
