"""What is believed of a study's metrics before anything was measured: several hypotheses at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.physics import UNKNOWN_BASELINE, BaselineFacts, Laws, draw_laws
from tuner.core import Kind, Role

ELASTICITY = 0.5
"""Where no physics is known, metrics go about as powers of the knobs. This is the expected size of the
exponents: 1 is strictly proportional. Our choice, as is the next."""

CURVATURE = 0.35
"""By how much an exponent is expected to change over the span of its own or another knob."""

ODD_STEP, ODD_SPAN = 0.3, 0.7
"""A knob that nobody knows is expected to change the time of an item by so much, from one of its values
to the next and from end to end at most (log units), and the power by half of that."""

MOST_STEPS = 16
"""Of a long ladder that nobody knows only so many steps are told apart."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A joint prior of all metrics at all rows of a grid, flattened metric by metric.

    `centres` are the means it may have, all alike likely: one row, or one for each law drawn.
    `features` are directions, each with a standard normal weight: its covariance is their product.
    """

    centres: Tensor
    features: Tensor


@lru_cache(maxsize=2)
def hypotheses(
    grid: Grid,
    known: tuple[Kind, ...],
    logarithmic: tuple[bool, ...],
    facts: BaselineFacts = UNKNOWN_BASELINE,
) -> tuple[Hypothesis, ...]:
    """Return the priors that the readings decide between.

    The last few are remembered: they are the same throughout a study and take longer than all else.

    The laws of physics, once one by one and once as a normal distribution with their mean and joint
    covariance, which reaches beyond the laws that were drawn; then power laws without any physics but
    that of power limits. A time may be that of an item or, `stepwise`, of a whole batch: where a batch
    size is a knob and a time is among the metrics, what the baseline's `stepwise` lists is there. Metrics
    of which physics knows nothing, or that are not on a logarithmic scale, follow power laws throughout.
    Where nobody knows what a knob does, the laws are there once more for the other knobs alone: its own
    oddities would else speak against all that is known of these.
    """
    kinds = [k if log else Kind.OTHER for k, log in zip(known, logarithmic, strict=True)]
    unknown = [kind is Kind.OTHER for kind in kinds]
    found = [Hypothesis(_capped(grid, kinds, facts), power_laws(grid, [True] * len(kinds)))]
    if all(unknown):
        return tuple(found)
    rest = power_laws(grid, unknown)
    laws = draw_laws(grid.roles, grid.ratios, facts)
    batched = Kind.TIME in kinds and bool({Role.BATCH, Role.CEILING} & {*grid.roles})
    odd = torch.tensor([role is Role.UNKNOWN for role in grid.roles], dtype=torch.bool)
    for step in facts.stepwise if batched else (False,):
        if odd.any():
            others = draw_laws(grid.roles, torch.where(odd, 1.0, grid.ratios), facts)
            free = torch.cat([rest, _oddities(grid, odd, kinds)])
            found.append(Hypothesis(_predictions(others, kinds, step), free))
        draws = _predictions(laws, kinds, step)
        centre = draws.mean(dim=0, keepdim=True)
        spread = (draws - centre) / math.sqrt(len(draws))
        found.append(Hypothesis(draws, rest))
        found.append(Hypothesis(centre, torch.cat([spread, rest])))
    return tuple(found)


def power_laws(grid: Grid, wanted: Sequence[bool]) -> Tensor:
    """Return features of laws quadratic in the logarithms of the knobs, nothing at the baseline.

    One block per wanted metric, zeros for the others.
    """
    logs = grid.ratios.log().T
    reach = logs.abs().amax(dim=1, keepdim=True).clamp_min(1e-9) if len(logs) else logs
    bent = logs / reach.sqrt() if len(logs) else logs
    pairs = [bent[i] * bent[j] for i in range(len(bent)) for j in range(i + 1)]
    features = torch.stack([*(ELASTICITY * logs), *(CURVATURE * pair for pair in pairs)])
    blocks = []
    for place, there in enumerate(wanted):
        if there:
            before, after = place, len(wanted) - place - 1
            zeros = torch.zeros_like(features)
            blocks.append(torch.cat([zeros] * before + [features] + [zeros] * after, dim=1))
    empty = torch.zeros(0, len(wanted) * len(grid.settings), dtype=torch.float64)
    return torch.cat(blocks) if blocks else empty


def _oddities(grid: Grid, odd: Tensor, kinds: Sequence[Kind]) -> Tensor:
    """Return features of knobs that nobody knows: nothing at the baseline, anything from step to step.

    To the time of an item and to the power meanwhile, whatever the other knobs are.
    """
    found = []
    for column in torch.nonzero(odd).flatten().tolist():
        points = grid.points[:, column]
        levels = torch.unique(points)
        between = (levels[1:] + levels[:-1]) / 2.0
        steps = between[:: max(1, -(-len(between) // MOST_STEPS)), None]
        home = points[(grid.ratios[:, column] - 1.0).abs().argmin()]
        passed = (points > steps).double() - (home > steps).double()
        passed *= min(ODD_STEP, ODD_SPAN / math.sqrt(max(1, len(steps))))
        none = torch.zeros_like(passed)
        found.append(
            _predictions(Laws(work=passed, step=passed, power=none), kinds, stepwise=False)
        )
        found.append(
            _predictions(Laws(work=none, step=none, power=passed / 2.0), kinds, stepwise=False)
        )
    return torch.cat(found)


def _predictions(laws: Laws, kinds: Sequence[Kind], stepwise: bool) -> Tensor:
    """Return what each law says of all metrics; nothing of those of which physics knows nothing."""
    nothing = torch.zeros_like(laws.power)
    predictions = [nothing if k is Kind.OTHER else laws.of(k, stepwise) for k in kinds]
    return torch.cat(predictions, dim=1)


def _capped(grid: Grid, kinds: Sequence[Kind], facts: BaselineFacts) -> Tensor:
    """Return what power laws start from: the mean of what the laws say of power limits alone.

    A power limit does nothing until it binds, and then much: no power of it is like that.
    """
    caps = torch.tensor([role is Role.POWER_LIMIT for role in grid.roles], dtype=torch.bool)
    if not caps.any():
        return torch.zeros(1, len(kinds) * len(grid.settings), dtype=torch.float64)
    laws = draw_laws(grid.roles, torch.where(caps, grid.ratios, 1.0), facts)
    return _predictions(laws, kinds, stepwise=False).mean(dim=0, keepdim=True)
