"""The kinds of made-up surfaces, and each surface by its seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from jouletune_bench.replay.names import roles_of
from jouletune_bench.replay.table import Surface
from tests.bench.contest.surfaces import WORTH_TUNING, SurfaceProblem
from tests.bench.made_up.devices import fine_ladder, roofline, throttling, tiles
from tests.bench.made_up.formula import SurfaceFormula
from tests.bench.made_up.hosts import queue, sockets, switches
from tests.bench.made_up.neutral import FUNCTIONS
from tests.bench.made_up.serving import runtime, serving
from tests.bench.made_up.single import one_clock, power_cap
from tuner.core import Constraint, Knob, Part, Role, Space, TuningError, setting_key

ACCURACY = "accuracy"
ACCURACY_NOISE = 0.1
"""The noise of an accuracy relative to that of a time: a tenth, as with some ten thousand samples."""
TIGHT = 1.1
"""At this slack every surface has a worthwhile saving, and so at any wider one."""
MOST_DRAWS = 200
NAMES = (
    "gpu_clock_mhz", "threads", "batch_size", "power_limit_w", "memory_clock_mhz", "max_num_seqs",
)  # fmt: skip
"""Meaningful names, for knobs with another meaning."""

Rename = Callable[[Sequence[str], Random], Mapping[str, str]]


def kept(names: Sequence[str], rng: Random) -> Mapping[str, str]:
    """Return the names unchanged."""
    return {name: name for name in names}


def nameless(names: Sequence[str], rng: Random) -> Mapping[str, str]:
    """Return meaningless names."""
    return {name: f"x{number}" for number, name in enumerate(names, 1)}


def misnamed(names: Sequence[str], rng: Random) -> Mapping[str, str]:
    """Return for each knob the name of a knob with another effect."""
    true = roles_of(names)
    for _ in range(MOST_DRAWS):
        names_given = dict(zip(names, rng.sample(NAMES, len(names)), strict=True))
        roles = roles_of(names_given.values())
        if all(roles[names_given[name]] is not true[name] for name in names):
            return names_given
    raise TuningError(f"no wrong names were found for {', '.join(names)}", hint="add some to NAMES")


@dataclass(frozen=True, slots=True)
class SurfaceKind:
    """Formulas to draw from in turn, the names of their knobs, and the factor of wrong standard errors."""

    formulas: tuple[Callable[[Random], SurfaceFormula], ...]
    rename: Rename = kept
    told: float = 1.0


NUMERIC = (queue, tiles, roofline, serving, sockets, fine_ladder)
KINDS: Mapping[str, SurfaceKind] = {
    "queue": SurfaceKind((queue,)),
    "sockets": SurfaceKind((sockets,)),
    "tiles": SurfaceKind((tiles,)),
    "throttling": SurfaceKind((throttling,)),
    "roofline": SurfaceKind((roofline,)),
    "fine_ladder": SurfaceKind((fine_ladder,)),
    "serving": SurfaceKind((serving,)),
    "runtime": SurfaceKind((runtime,)),
    "switches": SurfaceKind((switches,)),
    "one_knob": SurfaceKind((power_cap, one_clock)),
    "nameless": SurfaceKind(NUMERIC, nameless),
    "misnamed": SurfaceKind(NUMERIC, misnamed),
    "told_too_sure": SurfaceKind(NUMERIC, told=0.3),
    "told_too_unsure": SurfaceKind(NUMERIC, told=2.0),
    **{draw.__name__: SurfaceKind((draw,)) for draw in FUNCTIONS},
}
"""The kinds by name; each is reported as a separate source."""


def made_up(seed: int, surfaces: int) -> tuple[SurfaceProblem, ...]:
    """Return this many surfaces, from the kinds in turn. A larger number keeps the first ones."""
    kinds = list(KINDS)
    turns = [(kinds[i % len(kinds)], i // len(kinds)) for i in range(surfaces)]
    problems = [_problem(seed, kind, turn) for kind, turn in turns]
    return tuple(sorted(problems, key=lambda problem: kinds.index(problem.source)))


def _problem(seed: int, name: str, turn: int) -> SurfaceProblem:
    """Return a surface of a kind with a possible saving. Raises TuningError: none has one."""
    kind = KINDS[name]
    rng = Random(f"{seed}/{name}/{turn}")
    draw = kind.formulas[turn % len(kind.formulas)]
    for _ in range(MOST_DRAWS):
        problem = problem_of(kind, draw, draw(rng), rng, name, turn)
        if problem.saving(TIGHT) >= WORTH_TUNING:
            return problem
    raise TuningError(
        f"of {MOST_DRAWS} made-up surfaces of the kind {name} none saves {WORTH_TUNING:.0%}",
        hint="take another seed",
    )


def problem_of(
    kind: SurfaceKind,
    draw: Callable[[Random], SurfaceFormula],
    formula: SurfaceFormula,
    rng: Random,
    name: str,
    turn: int,
) -> SurfaceProblem:
    """Return the surface of a formula drawn by a kind."""
    made = _tabled(
        formula, kind.rename(list(formula.ladders), rng), f"{name}-{turn}", draw.__name__
    )
    return SurfaceProblem(
        name, made, floors=_floors(formula), noise={ACCURACY: ACCURACY_NOISE}, told=kind.told
    )


def _floors(formula: SurfaceFormula) -> tuple[Constraint, ...]:
    if formula.least_accuracy is None:
        return ()
    return (Constraint(ACCURACY, ">=", formula.least_accuracy, relative=True),)


SLOWING = frozenset(
    {
        *(Role.CORE_CLOCK, Role.MEMORY_CLOCK, Role.CPU_CLOCK, Role.HOST_CLOCK),
        *(Role.BOOST, Role.POWER_LIMIT),
    }
)
"""Roles of the device: lowering such a knob never makes anything faster."""


def _tabled(
    formula: SurfaceFormula, called: Mapping[str, str], name: str, workload: str
) -> Surface:
    """Return the table of a formula: every setting's true metrics, under the names that the tuner sees."""
    roles = roles_of(called.values())
    knobs = tuple(
        Knob(
            called[knob],
            values,
            formula.default[knob],
            Part.DEVICE if roles[called[knob]] in SLOWING else Part.WORKLOAD,
            role=roles[called[knob]],
            breaks=formula.breaks.get(knob, ()) if called[knob] == knob else (),
        )
        for knob, values in formula.ladders.items()
    )
    space = Space(knobs)
    values = {
        setting_key(setting): dict(
            formula.truth({own: setting[new] for own, new in called.items()})
        )
        for setting in space.grid()
    }
    return Surface(
        name=name,
        device="made-up",
        workload=workload,
        space=space,
        metrics=tuple(values[setting_key(space.default)]),
        objective=formula.objective,
        constrained=formula.limited,
        values=values,
        digest=hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:12],
    )
