"""BoTorch as in its documentation: a rival without any part of ours.

After the baseline two quasi-random settings, then the untried setting with the greatest
`LogConstrainedExpectedImprovement` (Ament et al., NeurIPS 2023) under one `SingleTaskGP` per metric
with inferred noise. Knobs are logarithms if they are positive, scaled to the unit cube. The incumbent
is the least posterior mean among the settings observed to keep the limits, or the baseline's if there
are none.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from botorch.acquisition.analytic import (
    LogConstrainedExpectedImprovement,
    LogExpectedImprovement,
)
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from tests.bench.rivals.observed import Observed
from tuner.bo.encoding import MOST_ROWS, positive
from tuner.core import Knob, Setting, Space, Value

STARTS = 2
"""Quasi-random settings before the model is asked."""
SPREAD = 8
"""A start is the one of this many Sobol points that is farthest from the observed settings."""


def choose(sofar: Observed, seed: int) -> tuple[Setting, str]:
    """Return the next setting to try, and the reason. Pure: torch's random state is not changed.

    In a space too large to enumerate it is chosen from a sample, drawn anew for every trial.
    """
    known = [o.setting for o in sofar.seen.values()]
    settings = [*known, *sofar.some_untried(MOST_ROWS, seed + sofar.spent)]
    points = _points(sofar.space, settings)
    seen, untried = list(range(len(known))), list(range(len(known), len(settings)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if sofar.spent < STARTS or len(sofar.seen) < STARTS:
            chosen, why = (
                _quasi_random(points, seen, untried, seed),
                "one of the first few, spread evenly over the settings",
            )
        else:
            gain = _log_gain(points, seen, sofar, untried)
            chosen, why = (
                untried[int(gain.argmax())],
                "the greatest expected saving with the limits kept",
            )
    return settings[chosen], why


def _quasi_random(points: Tensor, seen: list[int], untried: list[int], seed: int) -> int:
    """Return the row farthest from the observed ones, among the rows nearest to a few Sobol points."""
    cube = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, points.shape[1])
    targets = draw_sobol_samples(cube, n=SPREAD, q=1, seed=seed + len(seen))[:, 0]
    nearest = torch.cdist(targets, points[untried]).argmin(dim=1)
    rows = [untried[int(i)] for i in nearest]
    away = torch.cdist(points[rows], points[seen]).min(dim=1).values
    return rows[int(away.argmax())]


def _log_gain(points: Tensor, seen: list[int], sofar: Observed, untried: list[int]) -> Tensor:
    """Return the logarithm of the constrained expected improvement of the untried rows."""
    observations = list(sofar.seen.values())
    losses = torch.tensor([o.loss for o in observations], dtype=torch.float64)
    losses = losses.log() if (losses > 0.0).all() else losses
    breaches = torch.tensor([o.breaches for o in observations], dtype=torch.float64)
    columns = [losses, *breaches.T]
    model = ModelListGP(*(_fitted(points[seen], column) for column in columns))
    with torch.no_grad():
        mean = model.posterior(points[seen]).mean[:, 0]
        kept = torch.tensor([o.feasible for o in observations])
        kept = kept if kept.any() else torch.arange(len(kept)) == 0
        best = float(mean[kept].min())
        gain = (
            LogConstrainedExpectedImprovement(
                model,
                best_f=best,
                objective_index=0,
                constraints=dict.fromkeys(range(1, len(columns)), (None, 0.0)),
                maximize=False,
            )
            if len(columns) > 1
            else LogExpectedImprovement(model, best_f=best, maximize=False)
        )
        found: Tensor = gain(points[untried].unsqueeze(1))
    return found


def _fitted(points: Tensor, values: Tensor) -> SingleTaskGP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BotorchWarning)  # warnings of constant data and hard fits
        model = SingleTaskGP(points, values.unsqueeze(-1))
        likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
        try:
            fit_gpytorch_mll(likelihood)
        except ModelFittingError:
            model.eval()  # it then keeps its starting values
    return model


def _points(space: Space, settings: Sequence[Setting]) -> Tensor:
    """Return the settings in the unit cube, one column per knob with more than one value."""
    columns: list[list[float]] = []
    for knob in space.knobs:
        raw = [_scaled(knob, value) for value in knob.values]
        least, span = min(raw), max(raw) - min(raw)
        if span > 0.0:
            place = {v: (r - least) / span for v, r in zip(knob.values, raw, strict=True)}
            columns.append([place[s[knob.name]] for s in settings])
    return torch.tensor(columns, dtype=torch.float64).reshape(len(columns), len(settings)).T


def _scaled(knob: Knob, value: Value) -> float:
    if isinstance(value, bool | str):
        return float(knob.index(value))
    return math.log(value) if positive(knob.values) else float(value)
