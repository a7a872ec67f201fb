"""How far from a limit the true value should stay so that windows can show the limit kept."""

from __future__ import annotations

import math
from statistics import median

from tuner.core import Constraint, Estimate, Evidence, Limit, quantity_of


def usual_gap(evidence: Evidence, limit: Limit) -> float:
    """Return how far from its value the bound of one window usually lies, as a share of the value.

    The bound is the one that the limit is judged by; zero while no window had any.
    """
    windows = [t.shown for c in evidence.candidates for t in c.trials if t.solid]
    shown = [w[limit.metric] for w in windows if limit.metric in w]
    gaps = [_gap(e, limit) / e.mean for e in shown if e.mean > 0.0]
    return median([g for g in gaps if math.isfinite(g)] or [0.0])


def tightened(evidence: Evidence, limit: Limit) -> float:
    """Return the limit that a true value should keep, so that windows can show the real one kept.

    Only tails need a margin, that of their usual gap: a second window narrows the bound of a mean, but
    only a third one that of a quantile, and never to nothing.
    """
    tail = quantity_of(limit.metric, evidence.quantities).tail
    gap = usual_gap(evidence, limit) if tail else 0.0
    return float(limit.value * (1.0 + gap) ** -limit.sign)


def doubt(evidence: Evidence, constraint: Constraint) -> float:
    """Return how uncertain a limit relative to the baseline is, as a share of it."""
    baseline = evidence.baseline.get(constraint.metric)
    if not constraint.relative or baseline is None or baseline.mean <= 0.0:
        return 0.0
    return baseline.stderr / baseline.mean


def _gap(estimate: Estimate, limit: Limit) -> float:
    return estimate.high - estimate.mean if limit.sign > 0.0 else estimate.mean - estimate.low
