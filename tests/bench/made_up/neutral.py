"""Neutral functions: test functions with one limit, whose names have no physical meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random

from tests.bench.made_up.formula import SurfaceFormula, number
from tuner.core import Setting, Value

SCORE, LIMITED = "score", "burden"
Function = Callable[[Sequence[float]], tuple[float, float]]
"""The score and the limited metric at a point of the unit cube."""
Effects = dict[tuple[str, ...], float]
"""The effect of each choice, and of each pair of choices."""


def _cube(rng: Random, knobs: int, rungs: int, function: Function) -> SurfaceFormula:
    """Return a function over a cube of ordered knobs, from a baseline drawn anywhere."""
    steps = tuple(range(rungs))
    names = [f"k{number}" for number in range(knobs)]

    def truth(setting: Setting) -> Mapping[str, float]:
        score, burden = function([number(setting[name]) / (rungs - 1) for name in names])
        return {SCORE: score, LIMITED: burden}

    return SurfaceFormula(
        ladders=dict.fromkeys(names, steps),
        default={name: rng.choice(steps) for name in names},
        truth=truth,
        objective=SCORE,
        limited=LIMITED,
    )


def _sloped(rng: Random, knobs: int) -> Callable[[Sequence[float]], float]:
    """Return a limited metric that grows or falls along each knob, from 1 to about 2."""
    slopes = [rng.uniform(-1.0, 1.0) for _ in range(knobs)]
    return lambda x: (
        1.0 + sum(abs(s) * (v if s > 0.0 else 1.0 - v) for s, v in zip(slopes, x, strict=True))
    )


def branin(rng: Random) -> SurfaceFormula:
    """Return Branin's function with a disk as the limit (Gelbart et al., UAI 2014)."""
    shift = rng.uniform(-0.3, 0.3)

    def function(x: Sequence[float]) -> tuple[float, float]:
        a, b = 15.0 * x[0] - 5.0 + shift, 15.0 * x[1] + shift
        bowl = b - 5.1 / (4.0 * math.pi**2) * a * a + 5.0 / math.pi * a - 6.0
        value = bowl * bowl + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(a) + 10.0
        return 20.0 + value, 50.0 + (a - 2.5) ** 2 + (b - 7.5) ** 2

    return _cube(rng, 2, 48, function)


_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = (
    (10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14),
)  # fmt: skip
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann(rng: Random) -> SurfaceFormula:
    """Return Hartmann's function of six knobs, on a coarse grid."""
    burden = _sloped(rng, 6)

    def function(x: Sequence[float]) -> tuple[float, float]:
        value = sum(
            alpha * math.exp(-sum(a * (c - p) ** 2 for a, c, p in zip(row, x, at, strict=True)))
            for alpha, row, at in zip(_ALPHA, _A, _P, strict=True)
        )
        return 4.0 - value, burden(x)

    return _cube(rng, 6, 4, function)


def plateau(rng: Random) -> SurfaceFormula:
    """Return a function that is constant but for one basin with steps."""
    centre, width = [rng.random() for _ in range(4)], rng.uniform(0.25, 0.5)
    burden = _sloped(rng, 4)

    def function(x: Sequence[float]) -> tuple[float, float]:
        away = math.dist(x, centre) / width
        return 1.0 - 0.1 * round(5.0 * math.exp(-away * away)), burden(x)

    return _cube(rng, 4, 7, function)


def cliff(rng: Random) -> SurfaceFormula:
    """Return a slope whose best point is the last one before the limited metric triples."""
    slopes, edge = [rng.uniform(0.2, 1.0) for _ in range(3)], rng.uniform(0.5, 0.9)

    def function(x: Sequence[float]) -> tuple[float, float]:
        along = sum(s * v for s, v in zip(slopes, x, strict=True)) / sum(slopes)
        return 2.0 - along, 1.0 + 0.05 * along + (2.0 if along > edge else 0.0)

    return _cube(rng, 3, 14, function)


def multimodal(rng: Random) -> SurfaceFormula:
    """Return Rastrigin's function in three knobs: a bowl under waves, with many local optima."""
    centre, waves = [rng.random() for _ in range(3)], rng.uniform(2.0, 4.0)
    burden = _sloped(rng, 3)

    def function(x: Sequence[float]) -> tuple[float, float]:
        apart = [c - at for c, at in zip(x, centre, strict=True)]
        bowl = sum(d * d for d in apart)
        wave = sum(1.0 - math.cos(2.0 * math.pi * waves * d) for d in apart) / 3.0
        return 1.0 + bowl + 0.2 * wave, burden(x)

    return _cube(rng, 3, 14, function)


def categorical(rng: Random) -> SurfaceFormula:
    """Return choices without an order, with effects of each and of pairs."""
    ladders: dict[str, tuple[Value, ...]] = {
        f"k{knob}": tuple(f"v{choice}" for choice in range(rng.randint(5, 6))) for knob in range(5)
    }

    def effects(deviation: float) -> Effects:
        single = [(knob, value) for knob, values in ladders.items() for value in values]
        own: Effects = {(k, str(v)): rng.gauss(0.0, deviation) for k, v in single}
        both: Effects = {
            (a, str(v), b, str(w)): rng.gauss(0.0, deviation / 3.0)
            for a, b in pairwise(ladders)
            for v in ladders[a]
            for w in ladders[b]
        }
        return {**own, **both}

    score, burden = effects(0.1), effects(0.05)

    def total(parts: Effects, setting: Setting) -> float:
        own = sum(parts[k, str(v)] for k, v in setting.items())
        return math.exp(
            own + sum(parts[a, str(setting[a]), b, str(setting[b])] for a, b in pairwise(ladders))
        )

    def truth(setting: Setting) -> Mapping[str, float]:
        return {SCORE: total(score, setting), LIMITED: total(burden, setting)}

    return SurfaceFormula(
        ladders=ladders,
        default={knob: rng.choice(values) for knob, values in ladders.items()},
        truth=truth,
        objective=SCORE,
        limited=LIMITED,
    )


FUNCTIONS = (branin, hartmann, plateau, cliff, multimodal, categorical)
