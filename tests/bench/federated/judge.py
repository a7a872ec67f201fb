"""The requirements on a policy: the target reached, at little more than the best fixed setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tests.bench.federated.play import Played

MOST = {"energy_j": 1.10, "round_s": 1.15, "carbon_g": 1.10}
"""The largest mean of the ratios to the best fixed setting, by objective."""
MOST_STEPS = 1.15
"""The same where only the steps between two averagings are chosen."""
EASY = 0.8
"""A training must reach its target where a fixed setting needs at most this share of the rounds."""
MOST_MISSED = 2
MISSED = 2.0
"""A missed target counts as the spending of all rounds times this."""


@dataclass(frozen=True)
class Judged:
    """A policy against the best fixed setting in hindsight, for one minimised metric.

    `by_seed` are the ratios of the trainings in which a fixed setting reaches the target, `ratio` that
    of their sums. `missed` are the missed seeds among those in which one needs at most 80 % of the
    rounds, `missed_late` among the others. `alike` is the ratio to the same policy with alike classes.
    """

    objective: str
    best_fixed: Mapping[str, int]
    ratio: float
    by_seed: tuple[float, ...]
    missed: tuple[int, ...]
    missed_late: tuple[int, ...]
    reached: int
    possible: int
    paper_ratio: float
    paper_reached: int
    alike: float | None


@dataclass(frozen=True)
class Group:
    """The mean of the ratios of some federations, with its standard error, and the missed trainings."""

    federations: str
    objective: str
    count: int
    mean: float
    stderr: float
    paper_mean: float
    alike: float | None
    missed: int
    missed_late: int
    possible: int
    kept: bool


def best_of(fixed: Sequence[Sequence[Played]], target: float, metric: str) -> int:
    """Return the setting with the least of a metric over all seeds; missed targets count as such."""
    sums = [math.fsum(cost(r, metric, target) for r in runs) for runs in fixed]
    return min(range(len(fixed)), key=sums.__getitem__)


def cost(run: Played, metric: str, target: float) -> float:
    """Return the spending to a target; where it is missed, twice that of all rounds."""
    return run.spent(metric, target) * (1.0 if run.rounds_to(target) is not None else MISSED)


def judged(
    objective: str,
    target: float,
    rounds: int,
    grid: Sequence[Mapping[str, int]],
    fixed: Sequence[Sequence[Played]],
    ours: Sequence[Played],
    papers: Sequence[Played],
    alike: Sequence[Played] = (),
) -> Judged:
    """Return the judgement of a policy, from its trainings and those at fixed settings."""
    least = [
        min((n for r in runs if (n := r.rounds_to(target)) is not None), default=None)
        for runs in zip(*fixed, strict=True)
    ]
    seeds = [i for i, n in enumerate(least) if n is not None]
    easy = [i for i, n in enumerate(least) if n is not None and n <= EASY * rounds]
    place = best_of([[runs[i] for i in seeds] for runs in fixed], target, objective)

    def costs(runs: Sequence[Played]) -> list[float]:
        return [cost(runs[i], objective, target) for i in seeds]

    best, own = costs(fixed[place]), costs(ours)
    there = [run.rounds_to(target) is not None for run in ours]
    return Judged(
        objective,
        dict(grid[place]),
        _over(own, best),
        tuple(a / b for a, b in zip(own, best, strict=True)),
        tuple(i for i in easy if not there[i]),
        tuple(i for i in seeds if i not in easy and not there[i]),
        sum(there),
        len(seeds),
        _over(costs(papers), best),
        sum(r.rounds_to(target) is not None for r in papers),
        _over(own, costs(alike)) if alike else None,
    )


def group(name: str, objective: str, rows: Sequence[Judged], most: float) -> Group:
    """Return the judgement of some federations together."""
    ratios = [row.ratio for row in rows]
    alike = [row.alike for row in rows if row.alike is not None]
    missed, late = (
        sum(map(len, found)) for found in ([r.missed for r in rows], [r.missed_late for r in rows])
    )
    mean = fmean(ratios)
    return Group(
        name,
        objective,
        len(rows),
        mean,
        stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0,
        fmean(row.paper_ratio for row in rows),
        fmean(alike) if alike else None,
        missed,
        late,
        sum(row.possible for row in rows),
        mean <= most and not missed and late <= MOST_MISSED,
    )


def _over(own: Sequence[float], others: Sequence[float]) -> float:
    return math.fsum(own) / math.fsum(others) if others else math.nan
