"""From the evidence of a study to what may be believed of every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tuner.bo.acquisition import Belief, Bounds
from tuner.bo.encoding import Grid
from tuner.bo.proof import tightened
from tuner.bo.surrogate import Reading, Scale, marginals
from tuner.core import Candidate, Evidence, Limit, MetricUnavailable, Prediction, Study, setting_key

CENSORED_NOISE = 0.1
"""Noise added to a window that was cut short: it shows how bad at least, not how bad."""


@dataclass(frozen=True, slots=True)
class View:
    """What is believed of every row, the scales it is expressed in, and what was measured.

    The first scale is the objective's.
    """

    belief: Belief
    scales: Mapping[str, Scale]
    measured: Mapping[int, Candidate]

    def predicted(self, row: int) -> dict[str, Prediction]:
        """Return what is expected of one row, by metric and in the metrics' units."""
        return {
            metric: scale.prediction(
                float(self.belief.mean[row, column]), float(self.belief.sd[row, column])
            )
            for column, (metric, scale) in enumerate(self.scales.items())
        }


def believe(study: Study, evidence: Evidence, limits: tuple[Limit, ...], grid: Grid) -> View:
    """Fit one model per metric that the study aims at or limits.

    Raises:
        MetricUnavailable: no trial measured one of them.
    """
    measured = {row: c for c in evidence.candidates if (row := grid.row(c.setting)) is not None}
    baseline = grid.rows[setting_key(study.baseline)]
    scales: dict[str, Scale] = {}
    columns = []
    for metric in dict.fromkeys([study.objective.metric, *(limit.metric for limit in limits)]):
        shown = {row: c for row, c in measured.items() if metric in c.estimates}
        if not shown:
            raise MetricUnavailable(
                f"no trial of study {study.id} has measured {metric}",
                hint="constrain a metric that the device or the workload has",
            )
        values = [c.estimates[metric].mean for c in shown.values()]
        reference = evidence.baseline.get(metric)
        scale = Scale.of(reference.mean if reference else values[0], values)
        readings = [_reading(row, c, metric, scale) for row, c in shown.items()]
        columns.append(marginals(grid, baseline, readings, study.seed))
        scales[metric] = scale
    belief = Belief(
        torch.stack([mean for mean, _ in columns], dim=1),
        torch.stack([sd for _, sd in columns], dim=1),
        study.objective.sign > 0.0,
        _bounds(study, evidence, limits, scales),
    )
    return View(belief, scales, measured)


def _reading(row: int, candidate: Candidate, metric: str, scale: Scale) -> Reading:
    estimate = candidate.estimates[metric]
    noise = scale.width(estimate)
    if not candidate.deployable and any(t.censored for t in candidate.trials):
        noise = math.hypot(noise, CENSORED_NOISE)
    return Reading(row, scale.place(estimate.mean), noise)


def _bounds(
    study: Study, evidence: Evidence, limits: tuple[Limit, ...], scales: Mapping[str, Scale]
) -> dict[int, Bounds]:
    bounds: dict[int, Bounds] = {}
    metrics = list(scales)
    for constraint, limit in zip(study.constraints, limits, strict=True):
        column = metrics.index(limit.metric)
        at = scales[limit.metric].place(tightened(evidence, constraint, limit))
        lower, upper = bounds.get(column, (None, None))
        if limit.sign > 0.0:
            bounds[column] = (lower, at if upper is None else min(at, upper))
        else:
            bounds[column] = (at if lower is None else max(at, lower), upper)
    return bounds
