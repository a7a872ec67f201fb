"""Which plan like studies agree on: what each of them holds, or believes to be as good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from tuner.bo.encoding import Grid, grid_of
from tuner.bo.prior import JITTER
from tuner.bo.siblings import transferred
from tuner.core import LEAST_HOLDERS, Past, Posterior, Setting, setting_key

ALIKE = 0.1
"""The largest relative difference of a like device's baseline: some percent is usual."""

AS_GOOD = 0.02
"""The most (log units) that a plan as good as a study's own may cost more: a window's usual noise."""


def agreed_plan(like: Sequence[Posterior], past: Past) -> tuple[Setting, int]:
    """Return the plan that most like studies agree on, and how many; an empty one to verify none.

    All must have the versions, the objective and the constraints of this study. None where its
    baseline is not as theirs. Of plans with equal support the one that costs least by them.
    """
    study = past.study
    held = {setting_key(p.held): p.held for p in like if p.held and study.space.has(p.held)}
    plans = [setting for setting in held.values() if not study.rests(setting)]
    if not plans or not _alike(like, past):
        return {}, 0
    grid = grid_of(study.space, (study.baseline, *plans))
    costs = [_costs(p, grid, past) for p in like if p.held]
    support = {}
    for row, plan in enumerate(plans, 1):
        agreeing = [own[row] for own in costs if own[row] < math.inf]
        if len(agreeing) >= LEAST_HOLDERS:
            support[len(agreeing), -fmean(agreeing)] = plan
    best = max(support, default=(0, 0.0))
    return support.get(best, {}), best[0]


def _alike(like: Sequence[Posterior], past: Past) -> bool:
    """Return whether the baseline of this study is as that of like ones."""
    study, shown = past.study, past.evidence.baseline
    for metric in (study.objective.metric, *(c.metric for c in study.constraints)):
        theirs = [p.baseline[metric] for p in like if p.baseline.get(metric, 0.0) > 0.0]
        if len(theirs) < LEAST_HOLDERS or metric not in shown:
            return False
        if abs(shown[metric].mean / median(theirs) - 1.0) > ALIKE:
            return False
    return True


def _costs(posterior: Posterior, grid: Grid, past: Past) -> list[float]:
    """Return what each row of a grid costs by a posterior, in logarithms; infinite where it disagrees.

    A study agrees with the plan that it holds. It agrees with another if it believes, by a standard
    deviation, that this keeps the limits and costs no more than `AS_GOOD` above its own.
    """
    study, limits = past.study, past.limits or ()
    metrics = tuple(dict.fromkeys([study.objective.metric, *(x.metric for x in limits)]))
    own = grid.row(posterior.held)
    values = transferred(posterior, grid, metrics)
    if own is None or values is None:
        return [0.0 if row == own else math.inf for row in range(len(grid.settings))]
    table = values.reshape(len(values), len(metrics), -1)
    cost = study.objective.sign * table[:, 0]
    above = cost - cost[:, [own]]
    agrees = above[0] + above[1:].norm(dim=0) <= AS_GOOD
    for limit in limits:
        margin = limit.sign * table[:, metrics.index(limit.metric)]
        ratio = limit.value / past.evidence.baseline[limit.metric].mean
        most = limit.sign * math.log(max(ratio, JITTER))
        agrees &= margin[0] + margin[1:].norm(dim=0) <= most
    agrees[own] = True
    return [v if ok else math.inf for v, ok in zip(cost[0].tolist(), agrees.tolist(), strict=True)]
