"""The margin below a limit at which windows can prove that a tail keeps it."""

from __future__ import annotations

import math
from statistics import median

from tuner.core import Candidate, Estimate, Evidence, Limit, quantity_of


def complete_windows(candidate: Candidate, metric: str) -> list[Estimate]:
    """Return a metric of each window of a setting that was measured to the end."""
    return [t.shown[metric] for t in candidate.trials if t.solid and metric in t.shown]


def tail_gap(evidence: Evidence, limit: Limit) -> float:
    """Return the factor on a limit of a tail: the usual distance of a window's bound from its mean.

    Two windows narrow the bound of a mean; a quantile needs three, and keeps a distance then, too.
    1 for any other limit, and while no window had a bound.
    """
    if not quantity_of(limit.metric, evidence.quantities).tail:
        return 1.0
    gaps = [
        (e.high - e.mean if limit.sign > 0.0 else e.mean - e.low) / e.mean
        for candidate in evidence.candidates
        for e in complete_windows(candidate, limit.metric)
        if e.mean > 0.0 and limit.value > 0.0
    ]
    gap = median([g for g in gaps if math.isfinite(g)] or [0.0])
    return float((1.0 + gap) ** -limit.sign)
