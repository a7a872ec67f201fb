"""Made-up families of boards and workloads: each device is a formula whose numbers vary by both.

A number that a formula draws is the family's own, moved by the board, by the workload, and a little by the
device itself. Names and counts are the family's. A clock's ladder is the board's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from agents.devices.catalogue import known_truth
from agents.devices.simulated.presets import PRESETS
from agents.devices.simulated.presets import WORKLOADS as MODELS
from jouletune_bench.replay.table import Surface
from tests.bench.contest.surfaces import WORTH_TUNING, SurfaceProblem
from tests.bench.made_up.kinds import KINDS, TIGHT, problem_of
from tuner.core import Knob, Space, TuningError, setting_key

BOARDS, WORKLOADS, DEVICES = 3, 3, 1
BY_BOARD, BY_WORKLOAD, BY_DEVICE = 0.15, 0.2, 0.02
"""Standard deviations, as shares of the range that a formula draws from."""
OF_A_LADDER = 500.0
"""Ranges from here up are of a ladder's ends, in MHz."""
MOST_DRAWS = 50
SIMULATED = ("energy_j", "latency_p99_ms")
"""What a study of a simulated board makes least, and limits."""
MOST_VALUES = 9
"""The most values of a simulated board's knob: a table has every setting."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a device of a bench declares: its kind, board, workload, and which of several it is."""

    kind: str
    board: str
    workload: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.board}|{self.workload}|{self.number}"


@dataclass(frozen=True, slots=True)
class Known:
    """A surface with what its device declares."""

    declared: Declared
    problem: SurfaceProblem


class Related(Random):
    """Draws a family's numbers, moved by board, workload and device: each nth draw is one quantity."""

    def __new__(cls, *_: object) -> Related:
        return Random.__new__(cls)

    def __init__(self, family: str, board: str, workload: str, number: int) -> None:
        super().__init__(0)
        self._family = Random(family)
        self._moves = (
            (Random(f"{family}/board/{board}"), BY_BOARD),
            (Random(f"{family}/workload/{workload}"), BY_WORKLOAD),
            (Random(f"{family}/{board}/{workload}/{number}"), BY_DEVICE),
        )

    def uniform(self, a: float, b: float) -> float:
        place = self._family.random()
        moves = [(rng.gauss(0.0, 1.0), size) for rng, size in self._moves]
        of_board = moves[:1] if a >= OF_A_LADDER else moves
        place += math.fsum(z * size for z, size in of_board)
        return a + (b - a) * min(1.0, max(0.0, place))

    def choice(self, seq: Any) -> Any:  # noqa: ANN401
        return self._family.choice(seq)

    def randint(self, a: int, b: int) -> int:
        return self._family.randint(a, b)

    def random(self) -> float:
        return self._family.random()

    def sample(self, population: Any, k: int, **_: Any) -> Any:  # noqa: ANN401
        return self._family.sample(population, k)


def families(seed: int, kinds: Sequence[str] = (), turns: int = 1) -> tuple[Known, ...]:
    """Return the surfaces of `turns` families of each kind: boards x workloads x devices each.

    Those that have nothing to save are left out.
    """
    made = []
    for name in kinds or KINDS:
        for turn in range(turns):
            made += _family(seed, name, turn)
    return tuple(made)


def _family(seed: int, name: str, turn: int) -> list[Known]:
    """Return the first family drawn in which two thirds of the surfaces have something to save."""
    kind = KINDS[name]
    draw = kind.formulas[turn % len(kind.formulas)]
    for attempt in range(MOST_DRAWS):
        family = f"{seed}/{name}/{turn}/{attempt}"
        known: list[Known] = []
        for board in range(BOARDS):
            for workload in range(WORKLOADS):
                for number in range(DEVICES):
                    declared = Declared(
                        f"{name}-{turn}", f"{family}/b{board}", f"{family}/w{workload}", number
                    )
                    rng = Related(family, str(board), str(workload), number)
                    place = len(known)
                    problem = problem_of(kind, draw, draw(rng), Random(family), name, place)
                    known.append(Known(declared, problem))
        worth = [k for k in known if k.problem.saving(TIGHT) >= WORTH_TUNING]
        if len(worth) * 3 >= len(known) * 2:
            return worth
    return []


def simulated_boards() -> tuple[Known, ...]:
    """Return every workload on every simulated board, by its true values."""
    pairs = [(board, model) for board in PRESETS for model in MODELS]
    return tuple(
        Known(
            Declared("simulated", board, model),
            SurfaceProblem("simulated boards", _board_surface(board, model)),
        )
        for board, model in pairs
    )


def _board_surface(board: str, model: str) -> Surface:
    truth, name = known_truth(f"simulated:{board}/{model}"), f"{board}/{model}"
    if truth is None:
        raise TuningError(f"the true values of {name} are unknown", hint="choose a simulated board")
    space = Space(tuple(_thinned(knob) for knob in PRESETS[board].space.knobs))
    values = {setting_key(s): {m: truth(s)[m] for m in SIMULATED} for s in space.grid()}
    objective, limited = SIMULATED
    return Surface(name, board, model, space, SIMULATED, objective, limited, values, name)


def _thinned(knob: Knob) -> Knob:
    """Return a knob with at most `MOST_VALUES`, its ends and its default among them."""
    last = len(knob.values) - 1
    kept = {round(n * last / (MOST_VALUES - 1)) for n in range(MOST_VALUES)}
    values = (v for n, v in enumerate(knob.values) if n in kept or v == knob.default)
    return replace(knob, values=tuple(values))
