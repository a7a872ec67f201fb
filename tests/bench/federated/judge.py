"""The requirement on a policy: not much more than the best fixed setting in hindsight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tests.bench.federated.play import Played

MOST_MEAN, MOST = 1.25, 1.35
"""Of a goal's joules, × the best fixed setting's in hindsight: in the mean of all, and of each. Seconds
and grams are held to the second."""


@dataclass(frozen=True)
class Judged:
    """A policy against the best fixed setting in hindsight, for one minimised metric.

    `ratio` is that of the sums over seeds, `by_seed` that of each seed. `missed` has the seeds in which
    a fixed setting reached the target and the policy did not. `time_over_defaults` is the ratio of its
    seconds to the defaults'. `paper_ratio` and `paper_reached` are those of Q-learning as in the paper.
    `kept` is whether all requirements are met.
    """

    objective: str
    best_fixed: Mapping[str, int]
    ratio: float
    by_seed: tuple[float, ...]
    reached: int
    missed: tuple[int, ...]
    time_over_defaults: float
    paper_ratio: float
    paper_reached: int
    kept: bool


@dataclass(frozen=True)
class Verdict:
    """The judgement of all federations: the mean and the largest of the ratios, and the missed targets.

    A missed target makes a ratio too small, so that seed counts only in `missed` if there are others.
    """

    energy_mean: float
    energy_worst: float
    seconds_worst: float
    grams_worst: float
    time_over_defaults_worst: float
    interval_worst: float | None
    missed: int
    kept: bool


def best_of(fixed: Sequence[Sequence[Played]], target: float, metric: str) -> int:
    """Return the setting with the least of a metric, among those that reach a target in most seeds."""
    reached = [sum(r.rounds_to(target) is not None for r in runs) for runs in fixed]
    cost = [math.fsum(r.spent(metric, target) for r in runs) for runs in fixed]
    return min(range(len(fixed)), key=lambda i: (-reached[i], cost[i]))


def judged(
    objective: str,
    target: float,
    grid: Sequence[Mapping[str, int]],
    fixed: Sequence[Sequence[Played]],
    ours: Sequence[Played],
    papers: Sequence[Played],
    defaults: Sequence[Played],
) -> Judged:
    """Return the judgement of a policy, from its trainings and those at all fixed settings."""
    place = best_of(fixed, target, objective)
    best = [r.spent(objective, target) for r in fixed[place]]
    own = [r.spent(objective, target) for r in ours]
    possible = [
        any(r.rounds_to(target) is not None for r in runs) for runs in zip(*fixed, strict=True)
    ]
    there = [r.rounds_to(target) is not None for r in ours]
    missed = tuple(i for i, can in enumerate(possible) if can and not there[i])
    seconds, usual = (
        math.fsum(r.spent("round_s", target) for r in runs) for runs in (ours, defaults)
    )
    ratio = math.fsum(own) / math.fsum(best)
    return Judged(
        objective,
        dict(grid[place]),
        ratio,
        tuple(a / b for a, b in zip(own, best, strict=True)),
        sum(there),
        missed,
        seconds / usual,
        math.fsum(r.spent(objective, target) for r in papers) / math.fsum(best),
        sum(r.rounds_to(target) is not None for r in papers),
        ratio <= MOST and not missed and (objective != "energy_j" or seconds <= usual),
    )


def verdict(judgements: Sequence[Judged], steps: Sequence[tuple[float, bool]]) -> Verdict:
    """Return the judgement of all; `steps` has a ratio for each choice of steps, and whether it is kept."""

    def ratios(objective: str) -> list[float]:
        own = [j for j in judgements if j.objective == objective]
        return [j.ratio for j in own if not j.missed] or [j.ratio for j in own]

    joules = [j for j in judgements if j.objective == "energy_j"]
    mean = fmean(ratios("energy_j"))
    return Verdict(
        energy_mean=mean,
        energy_worst=max(ratios("energy_j")),
        seconds_worst=max(ratios("round_s")),
        grams_worst=max(ratios("carbon_g")),
        time_over_defaults_worst=max(j.time_over_defaults for j in joules),
        interval_worst=max((ratio for ratio, _ in steps), default=None),
        missed=sum(len(j.missed) for j in judgements),
        kept=mean <= MOST_MEAN
        and all(j.kept for j in judgements)
        and all(kept for _, kept in steps),
    )
