"""How sure the model may be: readings left out one by one, against what the others predict of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tuner.bo.surrogate import Component, RowReading

CALM = 4.0
"""The factor starts from as many readings that came as predicted without them: our choice."""


def calibrated(
    components: Sequence[Component], readings: Sequence[RowReading], columns: Iterable[int]
) -> list[Component]:
    """Return the components with the deviations of some columns as wide as surprises ask for.

    Never narrower, and nowhere wider than a row's own windows leave it. Left out in closed form
    (Rasmussen and Williams 2006, §5.4.2); the shares of the components stay those of all readings.
    """
    weights = torch.tensor([c.weight for c in components], dtype=torch.float64)
    each = torch.stack([c.loo_mean for c in components])
    loo_mean = weights @ each
    variance = weights @ (
        torch.stack([c.loo_variance for c in components]) + (each - loo_mean).square()
    )
    value = torch.tensor([r.value for r in readings], dtype=torch.float64)
    surprise = (value - loo_mean).square() / variance
    shape = components[0].sd
    factor, own = torch.ones_like(shape), torch.full_like(shape, math.inf)
    for column in columns:
        mine = [i for i, reading in enumerate(readings) if reading.metric == column]
        factor[:, column] = _widening(surprise[mine])
    for reading in readings:
        own[reading.row, reading.metric] = reading.noise
    return [
        replace(c, sd=torch.maximum(c.sd, torch.minimum(factor * c.sd, own))) for c in components
    ]


def _widening(surprise: Tensor) -> float:
    """Return by what deviations grow: the root mean square of standardised misses, one at least."""
    return max(1.0, math.sqrt((CALM + float(surprise.sum())) / (CALM + len(surprise))))
