"""The gain of dividing watts by value: against exhaustive search, the linear bound, and equal caps."""

from __future__ import annotations

import csv
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from policies.budget.division import BudgetMember, Division, divide

CURVES = Path(os.environ.get("JOULETUNE_LLM_POWER", "/nonexistent")) / "llm_power_caps.csv"
"""The folder of measured power caps of GPUs that serve language models, if available."""


@dataclass(frozen=True)
class Worth:
    """Throughput of a division over the best, for small groups and for 200 members; broken limits."""

    source: str
    small_groups: int
    small_worst: float
    small_mean: float
    large_groups: int
    large_worst: float
    broken: int
    broken_uniform: int
    groups: int
    groups_worse: int


def measured_curves() -> list[tuple[tuple[float, float], ...]]:
    """Return watts and tokens per second of each measured card; empty without the data."""
    if not CURVES.exists():
        return []
    curves: dict[str, list[tuple[float, float]]] = {}
    with CURVES.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            point = float(row["power_limit_w"]), 1.0 / float(row["latency_s"])
            curves.setdefault(row["surface"], []).append(point)
    return [tuple(sorted(curve)) for curve in curves.values()]


def simulated_curves() -> list[tuple[tuple[float, float], ...]]:
    """Return made-up boards: throughput rises with the cube root of the power above the idle power."""
    return [
        tuple(
            (most * part, 100.0 * max(0.0, part - idle) ** bend)
            for part in np.linspace(0.35, 1, 14)
        )
        for most, idle, bend in (
            (300, 0.2, 0.33),
            (400, 0.25, 0.4),
            (250, 0.1, 0.5),
            (700, 0.3, 0.3),
        )
    ]


def members(
    rng: random.Random, curves: Sequence[tuple[tuple[float, float], ...]], count: int
) -> list[BudgetMember]:
    """Return devices with these curves, each with a limit at a random point of its curve."""
    made = []
    for number in range(count):
        curve = rng.choice(curves)
        needs = rng.uniform(curve[0][0], curve[-1][0])
        made.append(BudgetMember(f"m{number}", curve[0][0], curve[-1][0], curve, needs))
    return made


def judge(
    source: str, curves: Sequence[tuple[tuple[float, float], ...]], groups: int, large: int
) -> Worth:
    """Compare divisions of random groups of these curves."""
    rng = random.Random(source)
    small = []
    broken = broken_uniform = worse = 0
    for _ in range(groups):
        group = members(rng, curves, rng.randint(2, 4))
        free = [BudgetMember(m.name, m.floor_w, m.most_w, m.front) for m in group]
        watts = _budget(rng, group)
        small.append(_throughput(free, divide(free, watts)) / _brute_force(free, watts))
        many = members(rng, curves, rng.randint(8, 60))
        watts = _budget(rng, many)
        ours = len(divide(many, watts).broken)
        alike = sum(not m.kept(_alike(many, watts)[m.name]) for m in many)
        broken, broken_uniform, worse = (
            broken + ours,
            broken_uniform + alike,
            worse + (ours > alike),
        )
    ratios = []
    for _ in range(large):
        group = [
            BudgetMember(m.name, m.floor_w, m.most_w, m.front) for m in members(rng, curves, 200)
        ]
        watts = _budget(rng, group)
        ratios.append(_throughput(group, divide(group, watts)) / _linear_bound(group, watts))
    return Worth(
        source, groups, min(small), math.fsum(small) / groups, large, min(ratios),
        broken, broken_uniform, groups, worse,
    )  # fmt: skip


def _budget(rng: random.Random, group: Sequence[BudgetMember]) -> float:
    floors = math.fsum(m.floor_w for m in group)
    return floors + rng.uniform(0.1, 0.9) * (math.fsum(m.most_w for m in group) - floors)


def _throughput(group: Sequence[BudgetMember], division: Division) -> float:
    return math.fsum(m.share(division.caps_w[m.name]) for m in group)


def _alike(group: Sequence[BudgetMember], watts: float) -> dict[str, float]:
    """Return uniform caps: the same share of each highest cap, at least the floors."""
    low, high = 0.0, 1.0
    for _ in range(40):
        part = (low + high) / 2.0
        total = math.fsum(max(m.floor_w, part * m.most_w) for m in group)
        low, high = (part, high) if total <= watts else (low, part)
    return {m.name: max(m.floor_w, low * m.most_w) for m in group}


def _brute_force(group: Sequence[BudgetMember], watts: float) -> float:
    """Return the highest throughput of all caps in whole watts, by dynamic programming."""
    spare = int(watts - math.fsum(m.floor_w for m in group))
    best = np.zeros(spare + 1)
    for m in group:
        values = [m.share(m.floor_w + w) for w in range(int(m.most_w - m.floor_w) + 1)]
        after = np.full(spare + 1, -np.inf)
        for w, value in enumerate(values[: spare + 1]):
            after[w:] = np.maximum(after[w:], best[: spare + 1 - w] + value)
        best = after
    return float(best.max())


def _linear_bound(group: Sequence[BudgetMember], watts: float) -> float:
    points = [(n, w, share) for n, m in enumerate(group) for w, share in m.curve]
    picks = np.zeros((len(group), len(points)))
    for column, (n, _, _) in enumerate(points):
        picks[n, column] = 1.0
    solved = linprog(
        [-share for *_, share in points],
        A_ub=[[w for _, w, _ in points]],
        b_ub=[watts],
        A_eq=picks,
        b_eq=np.ones(len(group)),
    )
    return float(-solved.fun)
