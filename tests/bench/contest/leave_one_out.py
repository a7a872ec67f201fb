"""How well a choice on some sources generalises to another: each source is left out in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tests.bench.contest.replay import TaskResult
from tests.bench.contest.score import Sample, ScoreRow, mean, rows, stderr

SAFE_AT = 8
"""The budget in trials, or the next larger one, at which a candidate's windows above a limit are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The candidate chosen without a source, and its result on that source, by budget."""

    source: str
    chosen: str
    captured: tuple[float, ...]
    windows_above: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generalisation:
    """The results of candidates chosen on all sources, and of those chosen on all other sources.

    By budget, with equal weights of the sources. `difference` is the in-sample result less the left-out
    one, with its standard error over surfaces: the optimism of a figure measured on the data on which
    the constants were chosen.
    """

    slack: float
    budgets: tuple[int, ...]
    candidates: tuple[str, ...]
    chosen: str
    in_sample: tuple[float, ...]
    in_sample_windows_above: tuple[float, ...]
    left_out: tuple[float, ...]
    left_out_windows_above: tuple[float, ...]
    difference: tuple[float, ...]
    difference_stderr: tuple[float | None, ...]
    sources: tuple[LeftOut, ...]


def generalisations(
    outcomes: Sequence[TaskResult], candidates: Sequence[str], most_above: float
) -> list[Generalisation]:
    """Return for each slack the generalisation of a choice among candidates from source to source.

    The chosen candidate captures most, in the mean over budgets, of those with at most `most_above`
    windows above a limit per study. If none has so few, it is the one with the fewest.
    """
    ours = [outcome for outcome in outcomes if outcome.tuner in candidates]
    slacks = dict.fromkeys(outcome.slack for outcome in ours)
    return [_generalisation([o for o in ours if o.slack == s], most_above) for s in slacks]


def _generalisation(outcomes: Sequence[TaskResult], most_above: float) -> Generalisation:
    """Return the generalisation of a choice at one slack."""
    best = _choice(outcomes, most_above)
    inside = [o for o in outcomes if o.tuner == best]
    outside: list[TaskResult] = []
    sources = []
    for source in dict.fromkeys(o.source for o in outcomes):
        chosen = _choice([o for o in outcomes if o.source != source], most_above)
        own = [o for o in outcomes if o.source == source and o.tuner == chosen]
        outside += own
        sources.append(
            LeftOut(
                source=source,
                chosen=chosen,
                captured=tuple(row.captured for row in rows(own)),
                windows_above=tuple(row.windows_above for row in rows(own)),
            )
        )
    budgets = tuple(look.budget for look in outcomes[0].checkpoints)
    lost = [_lost(inside, outside, at) for at in range(len(budgets))]
    return Generalisation(
        slack=outcomes[0].slack,
        budgets=budgets,
        candidates=tuple(dict.fromkeys(o.tuner for o in outcomes)),
        chosen=best,
        in_sample=_means(inside, "captured"),
        in_sample_windows_above=_means(inside, "windows_above"),
        left_out=_means(outside, "captured"),
        left_out_windows_above=_means(outside, "windows_above"),
        difference=tuple(mean(samples) for samples in lost),
        difference_stderr=tuple(stderr(samples) for samples in lost),
        sources=tuple(sources),
    )


def _choice(outcomes: Sequence[TaskResult], most_above: float) -> str:
    """Return the best candidate by these outcomes; of equal ones the first."""
    scored = rows(outcomes)
    names = list(dict.fromkeys(row.tuner for row in scored))
    own = {name: [row for row in scored if row.tuner == name] for name in names}
    above = {name: _windows(own[name]) for name in names}
    safe = [name for name in names if above[name] <= most_above]
    if not safe:
        return min(names, key=above.__getitem__)
    return max(safe, key=lambda name: fmean(row.captured for row in own[name]))


def _windows(own: Sequence[ScoreRow]) -> float:
    """Return a candidate's windows above a limit per study, at the budget that judges them."""
    late = [row for row in own if row.budget >= SAFE_AT]
    return (late or own[-1:])[0].windows_above


def _means(outcomes: Sequence[TaskResult], metric: str) -> tuple[float, ...]:
    """Return a figure by budget, with equal weights of the sources."""
    return tuple(
        mean((o.source, o.surface, float(getattr(o.checkpoints[at], metric))) for o in outcomes)
        for at in range(len(outcomes[0].checkpoints))
    )


def _lost(inside: Sequence[TaskResult], outside: Sequence[TaskResult], at: int) -> list[Sample]:
    """Return for each study the loss in captured saving by the choice without its source."""
    known = {(o.source, o.surface, o.seed): o.checkpoints[at].captured for o in outside}
    return [
        (o.source, o.surface, o.checkpoints[at].captured - known[o.source, o.surface, o.seed])
        for o in inside
        if (o.source, o.surface, o.seed) in known
    ]
