"""From the evidence of a study to what may be believed of every setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch

from tuner.bo.acquisition import Belief, Edge
from tuner.bo.calibration import calibrated
from tuner.bo.encoding import Grid
from tuner.bo.margin import doubt, tightened
from tuner.bo.physics import BaselineFacts, fills, share_drawn, waits_for_batch
from tuner.bo.prior import hypotheses
from tuner.bo.spread import learnt_spread
from tuner.bo.surrogate import Component, RowReading, Scale, posterior
from tuner.core import (
    POWER,
    Candidate,
    Evidence,
    Kind,
    Limit,
    MetricUnavailable,
    Prediction,
    Role,
    Setting,
    Study,
    Value,
    called,
    quantity_of,
)

CENSORED_NOISE = 0.1
"""Noise added to a window that was cut short: it shows how bad at least, not how bad."""


@dataclass(frozen=True, slots=True)
class View:
    """What is believed of every row, the scales it is expressed in, and what was measured.

    The first scale is the objective's. `running` are the rows that other devices measure just now, `beside`
    what will be believed if they show what is expected of them; None where none runs.
    """

    belief: Belief
    scales: Mapping[str, Scale]
    measured: Mapping[int, Candidate]
    running: frozenset[int] = frozenset()
    beside: Belief | None = None

    @property
    def ahead(self) -> Belief:
        """What will be believed once the running trials have ended: by this a promise is judged.

        Never a risk: they may show anything.
        """
        return self.beside or self.belief

    def predicted(self, row: int) -> dict[str, Prediction]:
        """Return what is expected of one row, by metric and in the metrics' units."""
        return {
            metric: scale.prediction(
                float(self.belief.mean[row, column]), float(self.belief.sd[row, column])
            )
            for column, (metric, scale) in enumerate(self.scales.items())
        }


def believe(
    study: Study,
    evidence: Evidence,
    limits: Sequence[Limit],
    grid: Grid,
    running: Sequence[Setting] = (),
) -> View:
    """Work out what is believed of each metric that the study aims at or limits.

    `running` are settings that are being measured: each is taken to show what is believed of it, with the
    noise of a usual window ("kriging believer", Ginsbourger et al. 2010, §3.2), for what is `ahead`.

    Raises:
        MetricUnavailable: no trial measured one of them.
    """
    measured = {row: c for c in evidence.candidates if (row := grid.row(c.setting)) is not None}
    metrics = list(dict.fromkeys([study.objective.metric, *(limit.metric for limit in limits)]))
    scales = {m: _scale(study, evidence, m, measured, grid) for m in metrics}
    readings = [
        _reading(place, row, candidate, metric, scales[metric])
        for place, metric in enumerate(metrics)
        for row, candidate in measured.items()
        if metric in candidate.estimates
    ]
    logarithmic = tuple(scale.log for scale in scales.values())
    kinds = tuple(quantity_of(metric, study.quantities).kind for metric in metrics)
    priors = hypotheses(grid, kinds, logarithmic, baseline_facts(study, evidence, metrics))
    limited = {metrics.index(limit.metric) for limit in limits}

    def conditioned(on: Sequence[RowReading]) -> list[Component]:
        return calibrated(posterior(grid, len(metrics), on, priors), on, limited)

    edges = tuple(
        Edge(
            column=metrics.index(limit.metric),
            sign=limit.sign,
            at=scales[limit.metric].place(tightened(evidence, limit)),
            doubt=scales[limit.metric].stretch(doubt(evidence, constraint), limit.value),
        )
        for constraint, limit in zip(study.constraints, limits, strict=True)
    )
    belief = Belief(conditioned(readings), study.objective.sign, edges)
    pending = frozenset(row for s in running if (row := grid.row(s)) is not None)
    if not pending:
        return View(belief, scales, measured)
    expected = _expected(belief, readings, sorted(pending))
    beside = replace(belief, components=conditioned([*readings, *expected]))
    return View(belief, scales, measured, pending, beside)


def _expected(
    belief: Belief, readings: Sequence[RowReading], rows: Sequence[int]
) -> Iterator[RowReading]:
    """Yield what windows at some rows should show, each metric with the median noise of the readings."""
    for metric in dict.fromkeys(r.metric for r in readings):
        noise = median(r.noise for r in readings if r.metric == metric)
        for row in rows:
            yield RowReading(metric, row, float(belief.mean[row, metric]), noise)


def baseline_facts(study: Study, evidence: Evidence, metrics: Sequence[str]) -> BaselineFacts:
    """Return what the baseline tells of the laws before anything was tried."""
    batches = [k for k in study.space.knobs if k.role in (Role.BATCH, Role.CEILING)]
    sizes = [(k.role, size) for k in batches if (size := _number(k.default)) is not None]
    shown = {name: estimate.mean for name, estimate in evidence.baseline.items()}
    times = [m for m in metrics if quantity_of(m, study.quantities).kind is Kind.TIME]
    batch = sizes[0][1] if len(batches) == len(sizes) == 1 else 0.0
    waits = {waits_for_batch(shown, metric, batch, study.quantities) for metric in times}
    stepwise = (True,) if waits == {True} else (False,) if waits == {False} else (False, True)
    ceilings = [size for role, size in sizes if role is Role.CEILING]
    full = any(fills(shown, m, size, study.quantities) for m in times for size in ceilings)
    return BaselineFacts(stepwise, _drawn(study, evidence), full)


def _drawn(study: Study, evidence: Evidence) -> float | None:
    """Return the share of its one power limit that the baseline draws, None where that is not known.

    What several devices draw together is told as one number, and each has the limit.
    """
    caps = [knob for knob in study.space.knobs if knob.role is Role.POWER_LIMIT]
    shown = evidence.baseline.get(called(POWER, study.quantities))
    limit = _number(caps[0].default) if len(caps) == 1 else None
    if limit is None or shown is None:
        return None
    return share_drawn(shown.mean / len(study.devices), limit)


def _number(value: Value) -> float | None:
    """Return a value as a number, None where it is text or a switch."""
    return None if isinstance(value, bool | str) else float(value)


def _scale(
    study: Study, evidence: Evidence, metric: str, measured: Mapping[int, Candidate], grid: Grid
) -> Scale:
    values = [c.estimates[metric].mean for c in measured.values() if metric in c.estimates]
    if not values:
        raise MetricUnavailable(
            f"no trial of study {study.id} has measured {metric}",
            hint="constrain a metric that the device or the workload has",
        )
    known = evidence.baseline.get(metric)
    reference = known.mean if known else values[0]
    if quantity_of(metric, study.quantities).kind is not Kind.OTHER or not reference:
        return Scale.of(reference, values)
    home = grid.row(study.baseline)
    shown = {r: c.estimates[metric] for r, c in measured.items() if metric in c.estimates}
    away = {row: estimate for row, estimate in shown.items() if row != home}
    spread = learnt_spread(
        grid,
        torch.tensor(list(away), dtype=torch.long),
        torch.tensor([e.mean / reference - 1.0 for e in away.values()], dtype=torch.float64),
        torch.tensor([e.stderr / abs(reference) for e in away.values()], dtype=torch.float64),
    )
    return Scale(reference, False, spread * abs(reference))


def _reading(metric: int, row: int, candidate: Candidate, name: str, scale: Scale) -> RowReading:
    estimate = candidate.estimates[name]
    noise = scale.width(estimate)
    if not candidate.deployable and any(t.censored for t in candidate.trials):
        noise = math.hypot(noise, CENSORED_NOISE)
    return RowReading(metric, row, scale.place(estimate.mean), noise)
