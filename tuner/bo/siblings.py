"""Posteriors of other studies as hypotheses about this one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.mixture import matern
from tuner.bo.prior import JITTER, Hypothesis, both_ways
from tuner.core import Closeness, Posterior, PosteriorKnob, SiblingMemory, matched

REACH = 1.0
"""The length scale, in spans of a posterior's points, over which it is interpolated."""

NUGGET = 1e-4
"""The variance of the rounding of a posterior's values, relative to their own."""

MOST_TRUST = 0.95
"""The most initial probability of siblings: two windows must be able to refute them."""

Column = list[float] | list[str]


@lru_cache(maxsize=2)
def sibling_hypotheses(
    grid: Grid, metrics: tuple[str, ...], memory: SiblingMemory, cold: int
) -> tuple[Hypothesis, ...]:
    """Return hypotheses for each closeness of a memory's siblings; `cold` is how many others there are.

    The siblings one by one, and a normal distribution with their mean and covariance, which covers
    studies between and beyond them. Siblings without one of the knobs or metrics are left out.
    """
    hypotheses: list[Hypothesis] = []
    for closeness in Closeness:
        alike = [s.posterior for s in memory.siblings if s.closeness is closeness]
        predicted = [(p.study, transferred(p, grid, metrics)) for p in alike]
        covered = [(name, table) for name, table in predicted if table is not None]
        if not covered:
            continue
        names, tables = zip(*covered, strict=True)
        trust = min(MOST_TRUST, memory.trust.get(closeness, 0.0))
        odds = trust / (1.0 - trust) * cold
        each = torch.stack([table[0] for table in tables])
        within = torch.cat([table[1:] for table in tables]) / math.sqrt(len(names))
        alone = Hypothesis(each, within, f"siblings ({closeness})", odds, names)
        several = both_ways(replace(alone, odds=odds / 2))
        hypotheses += several if len(names) > 1 else [alone]
    return tuple(hypotheses)


def transferred(posterior: Posterior, grid: Grid, metrics: Sequence[str]) -> Tensor | None:
    """Return a posterior's mean and directions at every row: `1 + n x (metrics x rows)`.

    None if a knob, a name or a metric is missing. Beyond its own points its nearest edge counts.
    """
    places = matched(posterior.knobs, knobs_of(grid))
    if places is None or not {*metrics} <= {*posterior.metrics}:
        return None
    own, other = [], []
    rows = dict(zip(places, coordinates(grid), strict=True))
    for place, knob in enumerate(posterior.knobs):
        there = [point[place] for point in posterior.points]
        here = rows.get(place, [there[0]] * len(grid.settings))
        if knob.named:
            names = sorted({*map(str, there)})
            if not {*here} <= {*names}:
                return None
            own += [[(v == n) / math.sqrt(2.0) for v in there] for n in names]
            other += [[(v == n) / math.sqrt(2.0) for v in here] for n in names]
        else:
            least, most = min(map(float, there)), max(map(float, there))
            span = max(most - least, JITTER)
            own.append([(float(v) - least) / span for v in there])
            other.append([(min(max(float(v), least), most) - least) / span for v in here])
    points = torch.tensor(own, dtype=torch.float64).T.reshape(len(posterior.points), -1)
    required = torch.tensor(other, dtype=torch.float64).T.reshape(len(grid.settings), -1)
    columns = [posterior.metrics.index(metric) for metric in metrics]
    values = torch.tensor([posterior.means, *posterior.directions], dtype=torch.float64)[:, columns]
    between = matern(torch.cdist(points, points) / REACH)
    between += NUGGET * torch.eye(len(points), dtype=torch.float64)
    shares: Tensor = torch.linalg.solve(between, matern(torch.cdist(points, required) / REACH))
    return (values @ shares).flatten(1)


def coordinates(grid: Grid) -> list[Column]:
    """Return for each knob of a grid the logarithm of each row's value over the default, or its name."""
    logs = grid.ratios.log().T.tolist()
    return [
        [str(setting[name]) for setting in grid.settings] if named else logs[column]
        for column, (name, named) in enumerate(zip(grid.names, grid.named, strict=True))
    ]


def knobs_of(grid: Grid) -> tuple[PosteriorKnob, ...]:
    """Return the knobs of a grid as a posterior has them."""
    return tuple(map(PosteriorKnob, grid.names, grid.roles, grid.named))
