"""Convert a study's windows for the model: costs of tokens and steps, acceptance, drafting's share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.speculation.acceptance import Lengths, observed_lengths, pooled
from policies.speculation.grid import Cell, Choice, Draft
from policies.speculation.surface import CellObservation, CostSurface
from tuner.core import (
    Estimate,
    InvalidInput,
    Kind,
    OverDevices,
    Prediction,
    Quantities,
    Study,
    Trial,
    quantity_of,
)

LEAST_SD = 0.005
"""The least standard error of a window, half a percent: our choice."""
TIMING_SD = 0.1
"""The share by which timings of parts miss those of the whole step."""
TOKENS_SD = 0.005


@dataclass(frozen=True, slots=True)
class CellWindow:
    """One window at a cell: the logarithm of a token's cost to one sequence, and its parts."""

    cell: Cell
    cost: float
    sd: float
    accepted: Lengths
    drafting: float | None


def shared(metric: str, declared: Quantities) -> bool:
    """Return whether all sequences of a step share a metric: a rate, an energy, a CPU's time.

    A latency is not shared: every sequence waits for the whole step.
    """
    meaning = quantity_of(metric, declared)
    return meaning.kind in (Kind.RATE, Kind.ENERGY) or meaning.over_devices is OverDevices.SUM


def prediction(study: Study, outlook: CostSurface, cell: Cell) -> dict[str, Prediction]:
    """Return the objective that is expected of a cell."""
    objective, place = study.objective, outlook.index[cell]
    alone = shared(objective.metric, study.quantities)
    cost = float(outlook.mean[place]) - (math.log(cell.batch) if alone else 0.0)
    mean = math.exp(objective.sign * cost)
    sd = math.sqrt(max(0.0, float(outlook.cov[place, place])))
    return {objective.metric: Prediction(mean, mean * min(1.0, sd))}


def window(trial: Trial, cell: Cell, study: Study) -> CellWindow | None:
    """Return a trial's window, None where it does not show the objective.

    Raises:
        InvalidInput: the acceptance is impossible.
    """
    shown, objective = trial.shown, study.objective
    score = objective.score(shown, trial.ran_at)
    broke = trial.broke is not None and trial.broke.metric == objective.metric
    if score is None or score.mean <= 0.0 or broke:
        return None
    return CellWindow(
        cell,
        objective.sign * math.log(score.mean)
        + (math.log(cell.batch) if shared(objective.metric, study.quantities) else 0.0),
        math.hypot(LEAST_SD, score.stderr / score.mean),
        observed_lengths(shown, cell.choice.length),
        _drafting(shown, cell.choice.length),
    )


def believable(trials: Iterable[tuple[Trial, Cell]], study: Study) -> list[CellWindow]:
    """Return the windows of trials in their order, without those with impossible values."""
    windows: list[CellWindow] = []
    for trial, cell in sorted(trials, key=lambda pair: pair[0].number):
        try:
            seen = window(trial, cell, study)
        except InvalidInput:
            continue
        if seen is not None:
            windows.append(seen)
    return windows


def observations(windows: Iterable[CellWindow], grid: Collection[Cell]) -> list[CellObservation]:
    """Return the observations for the model of a grid: one value per cell, and l(s) of each draft.

    Where a window reports its acceptance, the cost of its step is used instead of that of its
    tokens. Timings belong to the machine and the model, acceptance to the text, which may have
    changed since.
    """
    seen = list(windows)
    whole: dict[tuple[bool, Cell], list[tuple[float, float]]] = {}
    shares: dict[Cell, list[float]] = {}
    for one in seen:
        length = one.cell.choice.length
        accepted = one.accepted[-1].mean if one.accepted else 0.0
        by_step = len(one.accepted) == length
        cost = one.cost + (math.log1p(accepted) if by_step else 0.0)
        whole.setdefault((by_step, one.cell), []).append((cost, one.sd))
        if one.drafting is not None:
            shares.setdefault(one.cell, []).append(one.drafting)
    costs = [
        CellObservation("step" if by_step else "cost", cell, *_pooled(values))
        for (by_step, cell), values in whole.items()
    ]
    parts = [
        CellObservation("drafting", cell, math.fsum(values) / len(values), TIMING_SD)
        for cell, values in shares.items()
    ]
    tokens = [one for one in _tokens(seen) if one.cell in grid]
    return [*costs, *parts, *tokens]


def _tokens(windows: Iterable[CellWindow]) -> Iterator[CellObservation]:
    """Yield the accepted tokens at each length of each draft: they do not depend on the batch."""
    drafts: dict[Draft, list[CellWindow]] = {}
    for one in windows:
        if one.accepted:
            drafts.setdefault(one.cell.choice.draft, []).append(one)
    for draft, seen in drafts.items():
        batch = seen[0].cell.batch
        for length, accepted in enumerate(pooled(w.accepted for w in seen), start=1):
            sd = math.hypot(TOKENS_SD, accepted.stderr / (1.0 + accepted.mean))
            cell = Cell(batch, Choice(length, draft))
            yield CellObservation("tokens", cell, math.log1p(accepted.mean), sd)


def _drafting(shown: Mapping[str, Estimate], length: int) -> float | None:
    """Return the logarithm of drafting's time over verifying's, if the engine reports both."""
    verify, draft = shown.get("verify_ms"), shown.get("draft_ms")
    if not length or verify is None or draft is None or min(verify.mean, draft.mean) <= 0.0:
        return None
    return math.log(length * draft.mean / verify.mean)


def _pooled(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of values weighted by precision, and its standard deviation, at least `LEAST_SD`."""
    weights = [sd**-2 for _, sd in values]
    mean = math.fsum(w * v for w, (v, _) in zip(weights, values, strict=True)) / math.fsum(weights)
    return mean, max(LEAST_SD, math.fsum(weights) ** -0.5)
