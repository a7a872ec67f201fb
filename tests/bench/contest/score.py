"""Figures from single studies: means over the seeds and surfaces of a source, then over sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Any

from tests.bench.contest.replay import Checkpoint, Ending, TaskResult
from tuner.core import Z95

OURS = "ours"

Seen = tuple[TaskResult, Checkpoint]
Sample = tuple[str, str, float]
"""Source, surface, and a number from one seed."""
Key = tuple[str, str, int]
"""Source, surface and seed: one study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """The results of one tuner at one slack and budget, over all sources.

    `captured_stderr` is the standard error of `captured` from the spread of the surfaces' means within
    each source, with the sources fixed; None if a source has a single number. `windows_above` is the
    number of windows of a study above a limit, `violations` their share. `overshoot` is the mean of the
    studies' largest excesses, `worst_overshoot` the largest of all.
    """

    tuner: str
    slack: float
    budget: int
    captured: float
    captured_stderr: float | None
    windows_above: float
    violations: float
    overshoot: float
    worst_overshoot: float
    wrong_deployments: float
    seconds_per_suggestion: float
    surfaces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow(ScoreRow):
    """The results over the surfaces of one source."""

    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Ours against a rival on the same surfaces and seeds, with the same noise.

    `difference` is our captured share less the rival's, with equal weights of the sources; `pooled` is
    the same with equal weights of the surfaces. Each has its standard error over surfaces.
    `windows_ratio` is the ratio of our windows above a limit to the rival's; None if the rival has
    none.
    """

    rival: str
    slack: float
    budget: int
    difference: float
    difference_stderr: float | None
    pooled: float
    pooled_stderr: float | None
    windows_ratio: float | None
    surfaces: int
    studies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePair(Pair):
    """The comparison on the surfaces of one source."""

    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Seconds above the limit per study; `with_early_abort`: if windows were cut once that is clear."""

    tuner: str
    slack: float
    budget: int
    seconds: float
    with_early_abort: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The ends of studies on flat surfaces, after confirming: shares of studies and of the baseline.

    `trials` is the median of the trials before confirming, `windows_above` the mean of those above a
    limit. `within_noise` is the share whose true objective lies within one window's noise of the
    baseline's. `claimed` and `true` are mean savings; `overclaimed` is the share whose claimed
    saving exceeds the true one by more than 1.645 of its own standard errors.
    """

    tuner: str
    slack: float
    surfaces: int
    studies: int
    at_baseline: float
    trials: float
    windows_above: float
    within_noise: float
    claimed: float
    true: float
    overclaimed: float
    wrong: float


def rows(outcomes: Sequence[TaskResult]) -> list[ScoreRow]:
    """Return one row per tuner, slack and budget."""
    return [ScoreRow(**_figures(group)) for group in _groups(outcomes)]


def by_source(outcomes: Sequence[TaskResult]) -> list[SourceRow]:
    """Return one row per tuner, slack, budget and source."""
    source_rows = []
    for group in _groups(outcomes):
        for source in dict.fromkeys(outcome.source for outcome, _ in group):
            part = [seen for seen in group if seen[0].source == source]
            source_rows.append(SourceRow(source=source, **_figures(part)))
    return source_rows


def pairs(outcomes: Sequence[TaskResult]) -> list[Pair]:
    """Return ours against each rival where both ran."""
    return [Pair(**_pair(theirs, ours)) for theirs, ours in _duels(outcomes)]


def pairs_by_source(outcomes: Sequence[TaskResult]) -> list[SourcePair]:
    """Return ours against each rival on each source where both ran."""
    source_pairs = []
    for theirs, ours in _duels(outcomes):
        for source in dict.fromkeys(outcome.source for outcome, _ in theirs):
            part = [seen for seen in theirs if seen[0].source == source]
            source_pairs.append(SourcePair(source=source, **_pair(part, ours)))
    return source_pairs


def _duels(outcomes: Sequence[TaskResult]) -> Iterator[tuple[list[Seen], Mapping[Key, Checkpoint]]]:
    """Yield the results of each rival and of ours at each slack and budget where both ran."""
    groups = {(g[0][0].tuner, g[0][0].slack, g[0][1].budget): g for g in _groups(outcomes)}
    for (rival, slack, budget), theirs in groups.items():
        ours = {_study(outcome): look for outcome, look in groups.get((OURS, slack, budget), ())}
        both = [seen for seen in theirs if _study(seen[0]) in ours]
        if rival != OURS and both:
            yield both, ours


def _pair(theirs: Sequence[Seen], ours: Mapping[Key, Checkpoint]) -> dict[str, Any]:
    gains = _samples(theirs, lambda o, c: ours[_study(o)].captured - c.captured)
    our_windows = mean(_samples(theirs, lambda o, _: float(ours[_study(o)].windows_above)))
    their_windows = mean(_samples(theirs, lambda _, c: float(c.windows_above)))
    alike = [("", f"{source} {surface}", gain) for source, surface, gain in gains]
    outcome, look = theirs[0]
    return {
        "rival": outcome.tuner,
        "slack": outcome.slack,
        "budget": look.budget,
        "difference": mean(gains),
        "difference_stderr": stderr(gains),
        "pooled": mean(alike),
        "pooled_stderr": stderr(alike),
        "windows_ratio": our_windows / their_windows if their_windows else None,
        "surfaces": len({(o.source, o.surface) for o, _ in theirs}),
        "studies": len(theirs),
    }


def seconds_above_limit(outcomes: Sequence[TaskResult]) -> list[Seconds]:
    """Return the seconds of the studies' windows above the limit."""
    return [
        Seconds(
            tuner=group[0][0].tuner,
            slack=group[0][0].slack,
            budget=group[0][1].budget,
            seconds=mean(_samples(group, lambda _, c: c.above_s)),
            with_early_abort=mean(_samples(group, lambda _, c: c.above_aborting_s)),
        )
        for group in _groups(outcomes)
    ]


def controls(outcomes: Sequence[TaskResult], noise: float) -> list[Control]:
    """Return the ends of the studies on flat surfaces, per tuner and slack."""
    groups: dict[tuple[str, float], list[tuple[TaskResult, Ending]]] = {}
    for outcome in outcomes:
        if outcome.ending is not None:
            key = (outcome.tuner, outcome.slack)
            groups.setdefault(key, []).append((outcome, outcome.ending))
    return [
        Control(
            tuner=tuner,
            slack=slack,
            surfaces=len({(o.source, o.surface) for o, _ in group}),
            studies=len(group),
            **_ends([ending for _, ending in group], noise),
        )
        for (tuner, slack), group in groups.items()
    ]


def mean(samples: Iterable[Sample]) -> float:
    """Return the mean over seeds, then over the surfaces of a source, then over sources."""
    return fmean(fmean(surfaces) for surfaces in _by_source(samples))


def stderr(samples: Iterable[Sample]) -> float | None:
    """Return the standard error of `mean` from the spread of surfaces (of seeds for a single surface).

    The sources are fixed. None if one of them has a single number.
    """
    sources = _by_source(samples, seeds_of_one=True)
    if any(len(values) < 2 for values in sources):
        return None
    return math.sqrt(sum(variance(v) / len(v) for v in sources)) / len(sources)


def _by_source(samples: Iterable[Sample], *, seeds_of_one: bool = False) -> list[list[float]]:
    """Return for each source its surfaces' means; on request the seeds' numbers of a single surface."""
    cells: dict[str, dict[str, list[float]]] = {}
    for source, surface, value in samples:
        cells.setdefault(source, {}).setdefault(surface, []).append(value)
    return [
        next(iter(surfaces.values()))
        if seeds_of_one and len(surfaces) == 1
        else [fmean(values) for values in surfaces.values()]
        for surfaces in cells.values()
    ]


def _groups(outcomes: Sequence[TaskResult]) -> list[list[Seen]]:
    """Return the results by tuner, slack and budget."""
    groups: dict[tuple[str, float, int], list[Seen]] = {}
    for outcome in outcomes:
        for look in outcome.checkpoints:
            key = (outcome.tuner, outcome.slack, look.budget)
            groups.setdefault(key, []).append((outcome, look))
    return list(groups.values())


def _samples(
    group: Sequence[Seen], value: Callable[[TaskResult, Checkpoint], float]
) -> list[Sample]:
    return [(o.source, o.surface, value(o, look)) for o, look in group]


def _study(outcome: TaskResult) -> Key:
    return outcome.source, outcome.surface, outcome.seed


def _figures(group: Sequence[Seen]) -> dict[str, Any]:
    outcome, look = group[0]
    captured = _samples(group, lambda _, c: c.captured)
    return {
        "tuner": outcome.tuner,
        "slack": outcome.slack,
        "budget": look.budget,
        "captured": mean(captured),
        "captured_stderr": stderr(captured),
        "windows_above": mean(_samples(group, lambda _, c: float(c.windows_above))),
        "violations": mean(_samples(group, lambda _, c: c.violations)),
        "overshoot": mean(_samples(group, lambda _, c: c.overshoot)),
        "worst_overshoot": max(c.overshoot for _, c in group),
        "wrong_deployments": mean(_samples(group, lambda _, c: float(c.wrong))),
        "seconds_per_suggestion": mean(_samples(group, lambda _, c: c.seconds)),
        "surfaces": len({(o.source, o.surface) for o, _ in group}),
    }


def _ends(endings: Sequence[Ending], noise: float) -> dict[str, float]:
    return {
        "at_baseline": fmean(e.at_baseline for e in endings),
        "trials": float(median(e.trials for e in endings)),
        "windows_above": fmean(e.windows_above for e in endings),
        "within_noise": fmean(abs(e.true) <= noise for e in endings),
        "claimed": fmean(e.claimed for e in endings),
        "true": fmean(e.true for e in endings),
        "overclaimed": fmean(e.claimed - e.true > Z95 * e.claimed_stderr for e in endings),
        "wrong": fmean(e.wrong for e in endings),
    }
