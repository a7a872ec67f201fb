"""A study with siblings beside the same study without: paired, by source, then over the sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tests.bench.contest.replay import TaskResult

BUDGETS = (1, 2, 3, 5, 8)
"""Numbers of trials after which the deployed setting is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Studies with siblings and without at one number of trials.

    `difference` is what siblings capture more, with its standard error over surfaces; `windows_above`
    are per study, `wrong` the share of studies that would deploy a setting above a limit.
    """

    source: str
    budget: int
    cold: float
    difference: float
    stderr: float
    windows_above: float
    windows_above_cold: float
    wrong: float
    wrong_cold: float
    studies: int


def by_source(pairs: Sequence[tuple[str, TaskResult, TaskResult]]) -> list[Paired]:
    """Return the figures of each source and budget; a pair is of a source: cold, then with siblings."""
    sources = dict.fromkeys(source for source, _, _ in pairs)
    return [
        _paired(source, at, [(cold, warm) for s, cold, warm in pairs if s == source])
        for source in sources
        for at in range(len(BUDGETS))
    ]


def over_sources(rows: Iterable[Paired]) -> list[Paired]:
    """Return the figures over all sources, which count alike."""
    kept = list(rows)
    own = {budget: [r for r in kept if r.budget == budget] for budget in BUDGETS}
    return [_pooled(same, [1.0] * len(same)) for same in own.values() if same]


def over_studies(rows: Iterable[Paired]) -> dict[int, Paired]:
    """Return the figures over all studies, which count alike, by budget."""
    kept = list(rows)
    own = {budget: [r for r in kept if r.budget == budget] for budget in BUDGETS}
    return {b: _pooled(same, [r.studies for r in same]) for b, same in own.items() if same}


def _pooled(rows: Sequence[Paired], counts: Sequence[float]) -> Paired:
    """Return the weighted mean of figures at one budget."""
    shares = [count / math.fsum(counts) for count in counts]

    def mean(metric: str) -> float:
        return math.fsum(s * getattr(r, metric) for s, r in zip(shares, rows, strict=True))

    errors = ((s * r.stderr) ** 2 for s, r in zip(shares, rows, strict=True))
    names = ("cold", "difference", "windows_above", "windows_above_cold", "wrong", "wrong_cold")
    return Paired(
        source="all",
        budget=rows[0].budget,
        stderr=math.sqrt(math.fsum(errors)),
        studies=sum(r.studies for r in rows),
        **{name: mean(name) for name in names},
    )


def _paired(source: str, at: int, pairs: Sequence[tuple[TaskResult, TaskResult]]) -> Paired:
    """Return one figure. Seeds of a surface are averaged before the standard error is taken."""
    looks = [(cold.checkpoints[at], warm.checkpoints[at]) for cold, warm in pairs]
    by_surface: dict[str, list[float]] = {}
    for (cold, _), (before, after) in zip(pairs, looks, strict=True):
        by_surface.setdefault(cold.surface, []).append(after.captured - before.captured)
    means = [fmean(own) for own in by_surface.values()]
    return Paired(
        source=source,
        budget=BUDGETS[at],
        cold=fmean(before.captured for before, _ in looks),
        difference=fmean(means),
        stderr=stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0,
        windows_above=fmean(after.windows_above for _, after in looks),
        windows_above_cold=fmean(before.windows_above for before, _ in looks),
        wrong=fmean(after.wrong for _, after in looks),
        wrong_cold=fmean(before.wrong for before, _ in looks),
        studies=len(pairs),
    )


def bounds(rows: Sequence[Paired]) -> dict[str, object]:
    """Return each bound of a leave-one-out: its figure, and whether it is reached."""
    every = {r.budget: r for r in over_sources(rows)}
    late = max(every)
    lowest = min(r.difference for r in every.values())
    worst = min((r for r in rows if r.budget == 8), key=lambda r: r.difference + 2.0 * r.stderr)
    return {
        "mean @3 and @5 at least +0.05": bound(
            min(every[3].difference, every[5].difference), lambda v: v >= 0.05
        ),
        "no more windows above a limit than cold": bound(
            every[late].windows_above - every[late].windows_above_cold, lambda v: v <= 0.0
        ),
        "no source below cold @8 by more than 0.02 and two standard errors": {
            "source": worst.source,
            **bound(worst.difference + 2.0 * worst.stderr, lambda v: v >= -0.02),
        },
        "at no number of trials more than 0.02 below cold": bound(lowest, lambda v: v >= -0.02),
        "at most 1 % deployed above a limit": bound(every[late].wrong, lambda v: v <= 0.01),
    }


def bound(value: float, reached: Callable[[float], bool]) -> dict[str, object]:
    """Return a bound's figure, and whether it is reached."""
    return {"figure": round(value, 4), "reached": reached(value)}
