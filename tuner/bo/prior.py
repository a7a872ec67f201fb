"""The prior of a study's metrics before any measurement: several hypotheses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tuner.bo.encoding import MOST_STEPS, Breaks, Grid
from tuner.bo.physics import ODD, Laws, draw_laws
from tuner.core import Kind, Role

EXPECTED = 0.5
"""Without a physical law, metrics are about power laws of the knobs. This is the expected size of an
exponent (1 is strictly proportional), and of its change over the span of the same or another knob. Our
choice: half of a large exponent."""

JITTER = 1e-9
"""Added where a number must not be zero."""


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A joint prior of all metrics at all rows of a grid, flattened metric by metric.

    `centres` are its possible means, all equally likely: one row, or one for each law. `features`
    are directions, each with a standard normal weight: its covariance is their product. `name` is
    its name in an explanation.
    """

    centres: Tensor
    features: Tensor
    name: str = "powers of the knobs"


@lru_cache(maxsize=2)
def physical_hypotheses(grid: Grid, kinds: tuple[Kind, ...]) -> tuple[Hypothesis, ...]:
    """Return the hypotheses for metrics with a physical law; the readings weight them.

    The last few are cached: they are the same throughout a study and take longer than all else.

    Power laws come first, then the laws of physics, one by one. Where a batch size is a knob, a time
    may be that of an item or, `stepwise`, of a whole batch: both are used. Where a knob has no known
    effect, the laws are added once more for the other knobs alone: its irregular effect would else
    count as evidence against the laws of these. No law covers the effect of names. Where a knob has
    breaks, the laws are added once more with them.
    """
    centre = torch.zeros(1, len(kinds) * len(grid.settings), dtype=torch.float64)
    hypotheses = [Hypothesis(centre, power_laws(grid, len(kinds)))]
    named = torch.tensor(grid.named, dtype=torch.bool)
    odd = torch.tensor([role is Role.UNKNOWN for role in grid.roles], dtype=torch.bool) & ~named
    names = _oddities(grid, named, kinds)
    if odd.any():
        free = torch.cat([names, _oddities(grid, odd, kinds)])
        standard = _drawn(grid, odd | named, kinds)
        hypotheses += [Hypothesis(d, free, "laws of the standard knobs") for d in standard]
    laws = [("laws of physics", draws) for draws in _drawn(grid, named, kinds)]
    if any(grid.breaks):
        packed = _drawn(grid, named, kinds, grid.breaks)
        laws += [("laws with the host's topology", draws) for draws in packed]
    hypotheses += [Hypothesis(draws, names, name) for name, draws in laws]
    return tuple(hypotheses)


def _drawn(grid: Grid, without: Tensor, kinds: Sequence[Kind], breaks: Breaks = ()) -> list[Tensor]:
    """Return the predictions of laws of all knobs except some, once for each way to read a time."""
    ratios = torch.where(without, 1.0, grid.ratios)
    laws = draw_laws(grid.roles, ratios, breaks)
    batched = Kind.TIME in kinds and bool({Role.BATCH, Role.CEILING} & {*grid.roles})
    return [_predictions(laws, kinds, step) for step in (False, True)[: 1 + batched]]


@lru_cache(maxsize=2)
def no_law(grid: Grid) -> tuple[Hypothesis, ...]:
    """Return the only prior of a metric without a physical law: nothing but its leftover."""
    nothing = torch.zeros(1, len(grid.settings), dtype=torch.float64)
    return (Hypothesis(nothing, nothing[1:], "any smooth surface"),)


def power_laws(grid: Grid, metrics: int) -> Tensor:
    """Return features of laws quadratic in the logarithms of the knobs, zero at the baseline.

    Each name is a separate step. Beyond `MOST_STEPS` names there are no interactions between names:
    these are left to the residual. One block per metric.
    """
    many = grid.places.shape[1] - grid.named.count(False) > MOST_STEPS
    ratios = [*grid.ratios.T]
    slopes, bends = [], []
    for column, ratio in enumerate(ratios):
        if column < len(grid.named) and grid.named[column]:
            steps = list(_steps(grid, column))
            slopes += [ODD * step for step in steps]
            bends += [(step, many) for step in steps]
        else:
            log = ratio.log()
            slopes.append(EXPECTED * log)
            bends.append((log / log.abs().max().clamp_min(JITTER).sqrt(), False))
    both = [(bend, other) for i, bend in enumerate(bends) for other in bends[: i + 1]]
    pairs = [EXPECTED * x * y for (x, alone), (y, lonely) in both if not (alone and lonely)]
    if not slopes:
        return torch.zeros(0, metrics * len(grid.settings), dtype=torch.float64)
    blocks = torch.eye(metrics, dtype=torch.float64)
    return torch.kron(blocks, torch.stack([*slopes, *pairs]))


def _steps(grid: Grid, column: int) -> Iterator[Tensor]:
    """Yield a knob's steps away from the baseline: past a rung of its ladder, or to a name."""
    points = grid.points[:, column]
    levels = torch.unique(points)
    home = points[(grid.ratios[:, column] - 1.0).abs().argmin()]
    if grid.named[column]:
        yield from ((points == level).double() for level in levels if level != home)
        return
    between = (levels[1:] + levels[:-1]) / 2.0
    for step in between[:: max(1, -(-len(between) // MOST_STEPS))]:
        yield (points > step).double() - (home > step).double()


def _oddities(grid: Grid, odd: Tensor, kinds: Sequence[Kind]) -> Tensor:
    """Return features of knobs without a known effect: zero at the baseline, free at each step.

    They act on the time of an item and on the power during that time, independently of the other knobs.
    """
    predictions = [torch.zeros(0, len(kinds) * len(grid.settings), dtype=torch.float64)]
    for column in torch.nonzero(odd).flatten().tolist():
        steps = list(_steps(grid, column))
        if not steps:  # it has no effect in any of these settings
            continue
        passed = torch.stack(steps)
        size = ODD if grid.named[column] else ODD * min(1.0, 2.0 / math.sqrt(len(passed)))
        passed, none = size * passed, torch.zeros_like(passed)
        slower = Laws(work=passed, step=passed, power=none)
        hungrier = Laws(work=none, step=none, power=passed / 2.0)
        predictions += [_predictions(laws, kinds, stepwise=False) for laws in (slower, hungrier)]
    return torch.cat(predictions)


def _predictions(laws: Laws, kinds: Sequence[Kind], stepwise: bool) -> Tensor:
    """Return the prediction of each law for all metrics."""
    return torch.cat([laws.of(kind, stepwise) for kind in kinds], dim=1)
