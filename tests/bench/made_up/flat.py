"""Made-up surfaces without a possible saving: negative controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.bench.contest.surfaces import FLAT, SurfaceProblem
from tests.bench.made_up.formula import SurfaceFormula
from tests.bench.made_up.kinds import KINDS, MOST_DRAWS, problem_of
from tuner.core import TuningError

WIDEST = 1.25
"""A surface without a saving at this slack has none at any tighter one."""
SOURCES = (
    "queue",
    "tiles",
    "roofline",
    "serving",
    "sockets",
    "fine_ladder",
    "one_knob",
    "switches",
    "hartmann",
)


def flat(seed: int, surfaces: int) -> tuple[SurfaceProblem, ...]:
    """Return this many surfaces without a saving, from the kinds in turn.

    Alternately the vendor's defaults are optimal, or the baseline is the result of an earlier study.
    """
    turns = [(SOURCES[i % len(SOURCES)], i // len(SOURCES)) for i in range(surfaces)]
    problems = [_problem(seed, source, turn) for source, turn in turns]
    return tuple(sorted(problems, key=lambda problem: SOURCES.index(problem.source)))


def _problem(seed: int, source: str, turn: int) -> SurfaceProblem:
    rng = Random(f"{seed}/flat/{source}/{turn}")
    draw = KINDS[source].formulas[turn % len(KINDS[source].formulas)]
    if turn % 2 == 0:
        for _ in range(MOST_DRAWS):
            problem = problem_of(KINDS[source], draw, draw(rng), rng, source, turn)
            if problem.saving(WIDEST) < FLAT:
                return problem
    return _tuned(draw, rng, source, turn)


def _tuned(
    draw: Callable[[Random], SurfaceFormula], rng: Random, source: str, turn: int
) -> SurfaceProblem:
    """Return a surface whose baseline is the best setting within its limit."""
    formula = draw(rng)
    for _ in range(MOST_DRAWS):
        problem = problem_of(KINDS[source], draw, formula, rng, source, turn)
        if problem.saving(WIDEST) < FLAT:
            return problem
        formula = replace(formula, default=problem.best(WIDEST))
    raise TuningError(f"no baseline of {source} is as good as any", hint="take another seed")
