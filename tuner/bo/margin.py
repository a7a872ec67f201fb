"""The margin below a limit at which windows can prove that a tail keeps it."""

from __future__ import annotations

import math
from statistics import median

from tuner.core import Evidence, Limit, quantity_of


def tail_gap(evidence: Evidence, limit: Limit) -> float:
    """Return the factor on a limit of a tail: the usual distance of a window's bound from its mean.

    A second window narrows the bound of a mean, but only a third one that of a quantile, and never
    to zero. 1 for any other limit, and while no window had a bound.
    """
    if not quantity_of(limit.metric, evidence.quantities).tail:
        return 1.0
    windows = [t.shown for c in evidence.candidates for t in c.trials if t.solid]
    shown = [w[limit.metric] for w in windows if limit.metric in w]
    gaps = [
        (e.high - e.mean if limit.sign > 0.0 else e.mean - e.low) / e.mean
        for e in shown
        if e.mean > 0.0 and limit.value > 0.0
    ]
    gap = median([g for g in gaps if math.isfinite(g)] or [0.0])
    return float((1.0 + gap) ** -limit.sign)
