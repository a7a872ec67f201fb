"""What it takes to prove that a setting keeps its limits: slack, and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tuner.core import (
    Z95,
    Candidate,
    Constraint,
    Estimate,
    Evidence,
    Limit,
    TrialState,
    Verdict,
)

PROOF_WINDOWS = 2
"""A setting should have so much slack that this many windows can prove that it keeps its limits."""

MOST_WINDOWS = 4
"""No setting is measured more often than this while tuning."""


def tightened(evidence: Evidence, constraint: Constraint, limit: Limit) -> float:
    """Return the limit that a true value should keep so that windows can prove the real one kept.

    Short of the limit by the distance that value and bound typically have over `PROOF_WINDOWS`
    windows, and by what the baseline, and with it a relative limit, may still move.
    """
    gaps = [
        _gap(estimate, limit) * math.sqrt(_solid(c)) / estimate.mean
        for c in evidence.candidates
        if c.deployable and (estimate := c.estimates.get(limit.metric)) and estimate.mean > 0.0
    ]
    bounded = [g for g in gaps if math.isfinite(g)]
    gap = median(bounded) / math.sqrt(PROOF_WINDOWS) if bounded else 0.0
    baseline = evidence.baseline.get(limit.metric)
    doubt = 0.0
    if constraint.relative and baseline is not None and baseline.mean > 0.0:
        doubt = Z95 * baseline.stderr / baseline.mean
    return float(limit.value * (1.0 + math.hypot(gap, doubt)) ** -limit.sign)


def windows_to_proof(candidate: Candidate, limits: Sequence[Limit]) -> int | None:
    """Return how many further windows should prove a candidate feasible; None where none can.

    The distance between value and bound shrinks with the square root of the number of windows.
    """
    had = _solid(candidate)
    if candidate.verdict is not Verdict.UNSURE or not had:
        return None
    needed = had + 1
    for limit in limits:
        estimate = candidate.estimates.get(limit.metric)
        if estimate is None:
            return None
        slack = limit.sign * (limit.value - estimate.mean)
        gap = _gap(estimate, limit)
        if slack <= 0.0 or not math.isfinite(gap):
            return None
        needed = max(needed, math.ceil(had * (gap / slack) ** 2))
    return needed - had if needed <= MOST_WINDOWS else None


def _gap(estimate: Estimate, limit: Limit) -> float:
    return estimate.high - estimate.mean if limit.sign > 0.0 else estimate.mean - estimate.low


def _solid(candidate: Candidate) -> int:
    """Return how many windows stand behind the candidate's estimates."""
    return sum(t.state is TrialState.COMPLETED and not t.censored for t in candidate.trials)
