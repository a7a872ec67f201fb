"""Predict every setting's metrics from the evidence of a study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.margin import complete_windows, tail_gap
from tuner.bo.mixture import BESIDE_LAWS, Mixture, RowReading, without_laws
from tuner.bo.outcomes import ModelOutcome, OutcomeModel, improvement
from tuner.bo.prior import no_law, physical_hypotheses
from tuner.bo.scale import Scale
from tuner.core import (
    Candidate,
    Evidence,
    Kind,
    MetricUnavailable,
    Prediction,
    Setting,
    Study,
    quantity_of,
    setting_key,
)

CENSORED_NOISE = 0.1
"""Noise (log units) added to a window that was cut short, whose value only bounds the setting's cost
from below."""

CALM = 4.0
"""Pseudo-windows that scatter as reported, added to the scatter of repeated windows: our choice."""

WILDEST = 0.2
"""The most of an objective's deviation (log units) that counts as promise: a wide guess promises
nothing."""


@dataclass(frozen=True)
class View:
    """The prediction for every row, its scales, and the measured rows.

    Metrics that one law connects share a model; each other metric has its own. `models` begins with
    the objective's. `where` has the model and the column of each metric. `running` are the rows
    that other devices are measuring. `beside` is the prediction if these rows show their expected
    values; None if no row runs.
    """

    models: Sequence[OutcomeModel]
    scales: Mapping[str, Scale]
    where: Mapping[str, tuple[int, int]]
    measured: Mapping[int, Candidate]
    running: tuple[int, ...] = ()
    beside: View | None = None

    @property
    def ahead(self) -> View:
        """The prediction after the running trials, used for promises.

        Never for risk: the running trials may show anything.
        """
        return self.beside or self

    @cached_property
    def chance(self) -> Tensor:
        """Each row's probability to keep every limit."""
        return torch.stack([m.weights @ m.kept for m in self.models]).prod(dim=0).clamp_max(1.0)

    @cached_property
    def cost(self) -> Tensor:
        """The expected log ratio of each row's cost to the baseline's; less is better."""
        return self.models[0].weights @ self.models[0].mean[..., 0]

    @cached_property
    def cost_sd(self) -> Tensor:
        """The standard deviation of `cost`."""
        model = self.models[0]
        away = (model.mean[..., 0] - self.cost).square() + model.sd[..., 0].square()
        return (model.weights @ away).sqrt()

    def gain(self, best: float) -> Tensor:
        """Return the expected saving of each row below `best`, weighted by the chance to keep every limit.

        Constrained expected improvement (Gardner et al., ICML 2014) of the marginals, in closed
        form. The objective's deviation is cut at `WILDEST`.
        """
        model, *others = self.models
        by, sd = best - model.mean[..., 0], model.sd[..., 0].clamp_max(WILDEST)
        gain: Tensor = model.weights @ (improvement(by, sd) * model.kept)
        for other in others:
            gain = gain * (other.weights @ other.kept)
        return gain

    def predicted(self, row: int) -> dict[str, Prediction]:
        """Return the prediction for one row, by metric and in the metrics' units."""
        predictions = {}
        for metric, scale in self.scales.items():
            place, column = self.where[metric]
            mixture = self.models[place].mixture
            means, weights = mixture.mean[:, row, column], mixture.weights
            mean = float(weights @ means)
            spread = weights @ (mixture.variance[:, row, column] + (means - mean).square())
            predictions[metric] = scale.prediction(mean, math.sqrt(float(spread)))
        return predictions


def believe(
    study: Study,
    evidence: Evidence,
    grid: Grid,
    running: Sequence[Setting] = (),
) -> View:
    """Predict each metric that is an objective or has a limit, for every row of a grid.

    `running` are settings that are being measured. For `View.ahead` each is taken to show its
    expected value, with the largest error of the readings so far ("kriging believer", Ginsbourger
    et al. 2010, §3.2).

    Raises:
        MetricUnavailable: no trial measured one of them.
    """
    measured = {row: c for c in evidence.candidates if (row := grid.row(c.setting)) is not None}
    limited = (limit.metric for limit in evidence.limits or ())
    metrics = list(dict.fromkeys([study.objective.metric, *limited]))
    scales = {m: _scale(evidence, m) for m in metrics}
    quantities = {m: quantity_of(m, study.quantities) for m in metrics}
    # The laws of physics cover metrics in logarithms only.
    kinds = {m: q.kind if scales[m].log else Kind.OTHER for m, q in quantities.items()}
    noise = {m: _noise_factor(m, evidence) for m in metrics}
    home = grid.rows[setting_key(study.baseline)]
    pending = tuple(row for setting in running if (row := grid.row(setting)) is not None)
    grouped: list[list[OutcomeModel]] = []
    where: dict[str, tuple[int, int]] = {}
    for group in _groups(study, kinds):
        where |= {metric: (len(grouped), column) for column, metric in enumerate(group)}
        readings = [
            _reading(column, row, candidate, metric, scales[metric], noise[metric])
            for column, metric in enumerate(group)
            for row, candidate in measured.items()
            if metric in candidate.estimates
        ]
        own_kinds = tuple(kinds[metric] for metric in group)
        physical = Kind.OTHER not in own_kinds
        priors = physical_hypotheses(grid, own_kinds) if physical else no_law(grid)
        rests = BESIDE_LAWS if physical else without_laws(grid)
        condition = partial(Mixture, grid, home, len(group), priors=priors, rests=rests)
        mixtures = [condition(readings=readings)]
        if pending:
            expected = _expected(mixtures[0], pending, readings)
            mixtures.append(condition(readings=[*readings, *expected]))
        outcomes = _outcomes(study, evidence, group, scales)
        leads = study.objective.metric in group
        grouped.append([OutcomeModel(mixture, outcomes, leads) for mixture in mixtures])
    now, *soon = (View(m, scales, where, measured, pending) for m in zip(*grouped, strict=True))
    return replace(now, beside=soon[0]) if soon else now


def _expected(
    mixture: Mixture, rows: Sequence[int], readings: Sequence[RowReading]
) -> list[RowReading]:
    """Return readings of rows at their expected values, with the largest error of the readings so far."""
    usual = max(reading.noise for reading in readings)
    expected = torch.einsum("c,crm->rm", mixture.weights, mixture.mean)
    return [
        RowReading(column, row, float(expected[row, column]), usual)
        for column in range(mixture.metrics)
        for row in rows
    ]


def _groups(study: Study, kinds: Mapping[str, Kind]) -> list[tuple[str, ...]]:
    """Return the groups of metrics that share a model, the objective's first."""
    physical = tuple(m for m, kind in kinds.items() if kind is not Kind.OTHER)
    groups = [physical, *((m,) for m in kinds if m not in physical)]
    return sorted(filter(None, groups), key=lambda group: study.objective.metric not in group)


def _outcomes(
    study: Study, evidence: Evidence, group: Sequence[str], scales: Mapping[str, Scale]
) -> list[ModelOutcome]:
    """Return the outcomes of a group of metrics: the objective first, if it is in it, then margins.

    A limit relative to the baseline is relative in the model, too.
    """
    outcomes, metric = [], study.objective.metric
    if metric in group:
        factor = study.objective.sign * scales[metric].share
        outcomes.append(ModelOutcome(group.index(metric), factor, 1.0, 0.0))
    for constraint, limit in zip(study.constraints, evidence.limits or (), strict=True):
        if limit.metric not in group:
            continue
        scale, gap = scales[limit.metric], tail_gap(evidence, limit)
        if not constraint.relative:
            beside, at = 0.0, scale.place(limit.value * gap)
        elif scale.log:
            beside, at = 1.0, math.log(constraint.bound * gap)
        else:
            beside = constraint.multiple(scale.reference) * gap
            at = (beside - 1.0) * scale.reference / scale.unit
        factor = limit.sign * scale.share
        outcomes.append(ModelOutcome(group.index(limit.metric), factor, beside, at))
    return outcomes


def _noise_factor(metric: str, evidence: Evidence) -> float:
    """Return the factor on the reported standard errors, from the scatter of repeated windows."""
    squares, freedom = 0.0, 0
    for candidate in evidence.candidates:
        shown = complete_windows(candidate, metric)
        if len(shown) < 2 or min(e.stderr for e in shown) <= 0.0:
            continue
        weights = [1.0 / e.stderr**2 for e in shown]
        mean = sum(w * e.mean for w, e in zip(weights, shown, strict=True)) / sum(weights)
        squares += sum(w * (e.mean - mean) ** 2 for w, e in zip(weights, shown, strict=True))
        freedom += len(shown) - 1
    return math.sqrt((CALM + squares) / (CALM + freedom))


def _scale(evidence: Evidence, metric: str) -> Scale:
    """Return a metric's scale. Raises MetricUnavailable: no trial measured it."""
    values = [c.estimates[metric].mean for c in evidence.candidates if metric in c.estimates]
    if not values:
        raise MetricUnavailable(f"no trial has measured {metric}", hint="choose a measured metric")
    reference = baseline.mean if (baseline := evidence.baseline.get(metric)) else values[0]
    limits = [limit.value for limit in evidence.limits or () if limit.metric == metric]
    return Scale.of(reference, values, limits)


def _reading(
    column: int, row: int, candidate: Candidate, metric: str, scale: Scale, factor: float
) -> RowReading:
    """Return a candidate's windows as one reading, with the error of their scatter."""
    estimate = candidate.estimates[metric]
    stderr, stderrs = estimate.stderr, [e.stderr for e in complete_windows(candidate, metric)]
    if stderrs and min(stderrs) > 0.0:
        stderr = factor / math.sqrt(sum(1.0 / e**2 for e in stderrs))
    noise = scale.width(estimate.mean, stderr)
    if not candidate.deployable and any(t.censored for t in candidate.trials):
        noise = math.hypot(noise, CENSORED_NOISE)
    return RowReading(column, row, scale.place(estimate.mean), noise)
