"""A finished study's posterior, from its trials alone: the same trials give the same posterior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tuner.bo.beliefs import View, believe
from tuner.bo.encoding import Grid
from tuner.bo.nearby import sampled
from tuner.bo.siblings import coordinates, knobs_of
from tuner.core import (
    NO_MEMORY,
    Closeness,
    Device,
    Kind,
    Past,
    Phase,
    Posterior,
    Sibling,
    SiblingMemory,
    quantity_of,
    versions_of,
)

MOST_POINTS = 96
"""The most settings of a posterior."""

DIRECTIONS = 4
"""The number of largest joint deviations that are kept: they have most of the variance."""

COMPONENTS = 6
"""The number of most probable components that deviations are taken from."""

EARLY = 5
"""Siblings are worth as much as they help a search of this number of trials."""

DIGITS = 4


def posterior_of(past: Past, device: Device, siblings: Sequence[Sibling] = ()) -> Posterior | None:
    """Return the posterior of a study, None where its objective follows no law or it has no baseline.

    Its own siblings are not in it: a belief must not come back as evidence. `siblings` are those
    whose worth for it is computed.
    """
    study, plan = past.study, past.study.held
    physical = quantity_of(study.objective.metric, study.quantities).kind is not Kind.OTHER
    if past.limits is None or not physical or study.terms.plan_by or study.space.size < 2:
        return None
    view, grid = _cold(past)
    metrics = tuple(m for m, (model, _) in view.where.items() if model == 0)
    if not all(view.scales[m].log for m in metrics):
        return None
    rows = _selected(grid, view.models[0].mixture.home, list(view.measured))
    means, *directions = [tuple(map(tuple, each)) for each in _deviations(view, rows).tolist()]
    baseline = {metric: shown.mean for metric, shown in past.evidence.baseline.items()}
    columns = [[column[row] for row in rows] for column in coordinates(grid)]
    return Posterior(
        study=study.id,
        revision=study.revision,
        board=device.board,
        kind=device.kind,
        workload=device.workload,
        versions=versions_of(device),
        knobs=knobs_of(grid),
        points=tuple(
            tuple(round(v, DIGITS) if isinstance(v, float) else v for v in point)
            for point in zip(*columns, strict=True)
        ),
        metrics=metrics,
        means=means,
        directions=tuple(directions),
        baseline=baseline if len(study.devices) == 1 else {},
        held={} if plan is None or len(plan.rows) > 1 else plan.rows[0].setting,
        aim=study.aim,
        settings=len(view.measured),
        worth=_worth(past, siblings),
    )


def _worth(past: Past, siblings: Sequence[Sibling]) -> Mapping[Closeness, float]:
    """Return the probability of siblings of each closeness after the first windows, at even odds.

    None of those whose knobs or metrics do not cover the study.
    """
    tuned = [t.number for t in past.trials if t.phase is Phase.TUNING]
    last = max(tuned[:EARLY], default=0)
    early = Past(study=past.study, trials=tuple(t for t in past.trials if t.number <= last))
    closenesses = dict.fromkeys(s.closeness for s in siblings if tuned and early.limits is not None)
    shares = {}
    for closeness in closenesses:
        own = tuple(s for s in siblings if s.closeness is closeness)
        memory = SiblingMemory(f"worth of {closeness}", own, {closeness: 0.5})
        mixture = _cold(early, memory)[0].models[0].mixture
        if mixture.siblings_prior:
            shares[closeness] = mixture.siblings_share
    return shares


def _cold(past: Past, memory: SiblingMemory = NO_MEMORY) -> tuple[View, Grid]:
    grid = sampled(past.study, [c.setting for c in past.evidence.candidates])
    return believe(past.study, past.evidence, grid, memory=memory), grid


def _selected(grid: Grid, home: int, measured: Sequence[int]) -> list[int]:
    """Return the baseline, the measured rows, and rows far from all selected, up to `MOST_POINTS`."""
    if len(grid.settings) <= MOST_POINTS:
        return [home, *(row for row in range(len(grid.settings)) if row != home)]
    rows = list(dict.fromkeys([home, *measured]))[:MOST_POINTS]
    apart = torch.cdist(grid.places[rows], grid.places).amin(dim=0)
    while len(rows) < MOST_POINTS:
        rows.append(int(apart.argmax()))
        apart = torch.minimum(apart, torch.cdist(grid.places[rows[-1:]], grid.places)[0])
    return rows


def _deviations(view: View, rows: Sequence[int]) -> Tensor:
    """Return the expected metrics of rows beside the first, then the largest joint deviations.

    `1 + DIRECTIONS x metrics x rows`.
    """
    mixture = view.models[0].mixture
    mean, covariance = mixture.beside_home(rows, COMPONENTS)
    sizes, vectors = torch.linalg.eigh(covariance)
    largest = vectors[:, -DIRECTIONS:] * sizes[-DIRECTIONS:].clamp_min(0.0).sqrt()
    both = torch.cat([mean[None], largest.T]).round(decimals=DIGITS)
    return both.reshape(-1, mixture.metrics, len(rows))
