"""Searches with predictions given by hand, so that each decision can be tested alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from tests.builders import asked, knob, past, setting, trial, window
from tuner.bo.beliefs import View, believe
from tuner.bo.encoding import enumerate_grid
from tuner.bo.mixture import Mixture
from tuner.bo.outcomes import ModelOutcome, OutcomeModel
from tuner.bo.scale import Scale
from tuner.bo.search import Search
from tuner.core import Phase, Safety, Setting, Space, Study, Trial, TrialState, weigh

CLOCKS = (500, 600, 700, 800, 900, 1000)
LADDER = Space((knob("gpu.clock_mhz", CLOCKS, 1000), knob("batch_size", (1,), 1)))
LIMIT = math.log(1.2)
Belief4 = tuple[float, float, float, float]
"""Energy and its deviation, latency and its deviation: logarithms relative to the baseline."""
NOTHING: Belief4 = (0.0, 0.001, 0.0, 0.001)
UNPROMISING: Belief4 = (0.3, 0.001, 1.0, 0.001)


def ladder(count: int = 20, safety: Safety = Safety.BALANCED, **changes: Any) -> Study:  # noqa: ANN401
    """Return a study of six clocks, with these changes."""
    at = asked(count, **{"space": LADDER, **changes})
    return replace(at, terms=replace(at.terms, safety=safety))


def at_baseline(at: Study) -> list[Trial]:
    return [trial(n, at.baseline, window(), phase=Phase.BASELINE) for n in (1, 2)]


def idle(at: Study, count: int = 12) -> list[Trial]:
    """Return tuning trials without new information: the baseline again, then settings outside the grid."""
    seen = trial(1, {**at.baseline, "gpu.clock_mhz": 1}, state=TrialState.CONTAMINATED)
    lost = [replace(seen, number=n) for n in range(100, 99 + count)]
    return [trial(99, at.baseline, window()), *lost]


def measured(number: int, mhz: int, energy_j: float = 9.0, latency_ms: float = 110.0) -> Trial:
    return trial(number, setting(mhz), window(energy_j, latency_ms))


def seen(
    at: Study, trials: Sequence[Trial], within: Callable[[Setting], bool] | None = None
) -> Search:
    """Return the search with the real predictions after some trials."""
    evidence = weigh(at, trials)
    assert evidence.limits is not None
    grid = enumerate_grid(at.space)
    view = believe(at, evidence, grid)
    return Search(past(at, trials), grid, view, within)


def believing(
    at: Study,
    trials: Sequence[Trial],
    *worlds: Mapping[int, Belief4],
    rest: Belief4 = UNPROMISING,
    limited: bool = True,
) -> Search:
    """Return a search with these predictions for each clock, in one or more equally likely worlds."""
    search = seen(at, trials)
    rows = [[w.get(int(s["gpu.clock_mhz"]), rest) for s in search.grid.settings] for w in worlds]
    tables = torch.tensor(rows, dtype=torch.float64)
    model = told(search.baseline, tables, *([LIMIT] if limited else []))
    scales = {"energy_j": Scale(10.0, True), "latency_p99_ms": Scale(100.0, True)}
    where = {"energy_j": (0, 0), "latency_p99_ms": (0, 1)}
    return replace(search, view=View([model], scales, where, search.view.measured))


def told(home: int, tables: Tensor, *limits: float) -> OutcomeModel:
    """Return a model given by hand, with equally likely worlds.

    `tables` has `worlds x rows x (mean, deviation of each metric in turn)`. The first metric is the
    objective; the others stay at or below their limits.
    """
    mean, sd = tables[..., ::2], tables[..., 1::2]
    mixture = SimpleNamespace(
        home=home,
        metrics=mean.shape[2],
        usual_noise=torch.full((mean.shape[2],), 0.02, dtype=torch.float64),
        weights=torch.full((len(tables),), 1.0 / len(tables), dtype=torch.float64),
        mean=mean,
        variance=sd.square(),
        with_home=torch.zeros_like(mean),
    )
    margins = [ModelOutcome(1 + n, 1.0, 0.0, limit) for n, limit in enumerate(limits)]
    return OutcomeModel(cast("Mixture", mixture), [ModelOutcome(0, 1.0, 0.0, 0.0), *margins], True)


def believed(search: Search, metric: str) -> tuple[Tensor, Tensor]:
    """Return the mean and deviation of a metric at every row, in its model's units."""
    model, column = search.view.where[metric]
    mixture = search.view.models[model].mixture
    means, variances = mixture.mean[..., column], mixture.variance[..., column]
    mean = mixture.weights @ means
    return mean, (mixture.weights @ (variances + (means - mean).square())).sqrt()
