"""What it takes to prove that a setting keeps its limits: slack, and windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from tuner.core import (
    Z95,
    Candidate,
    Constraint,
    Estimate,
    Evidence,
    Limit,
    Trial,
    TrialState,
    Verdict,
    judge,
    pool_windows,
)

MOST_WINDOWS = 4
"""No setting is measured more often than this while tuning."""


def usual_gap(evidence: Evidence, limit: Limit) -> float:
    """Return how far from its value the bound of one window usually lies, as a share of the value.

    The bound is the one that the limit is judged by; zero while no window had any.
    """
    windows = [t.shown for c in evidence.candidates for t in c.trials if _solid(t)]
    shown = [w[limit.metric] for w in windows if limit.metric in w]
    gaps = [_gap(e, limit) / e.mean for e in shown if e.mean > 0.0]
    return median([g for g in gaps if math.isfinite(g)] or [0.0])


def tightened(evidence: Evidence, constraint: Constraint, limit: Limit) -> float:
    """Return the limit that a true value should keep, so that windows can prove the real one kept.

    Short of it by the usual gap, and by what the baseline, and with it a relative limit, may move.
    """
    baseline = evidence.baseline.get(limit.metric)
    doubt = 0.0
    if constraint.relative and baseline is not None and baseline.mean > 0.0:
        doubt = Z95 * baseline.stderr / baseline.mean
    margin = math.hypot(usual_gap(evidence, limit), doubt)
    return float(limit.value * (1.0 + margin) ** -limit.sign)


def windows_to_proof(
    candidate: Candidate, limits: Sequence[Limit], gaps: Mapping[str, float]
) -> int | None:
    """Return how many further windows should prove a candidate feasible; None where none can.

    Supposes windows that show what it showed so far, with bounds at the usual `gaps` (by metric).
    """
    solid = [t.shown for t in candidate.trials if _solid(t)]
    if candidate.verdict is not Verdict.UNSURE or not solid:
        return None
    if any(limit.metric not in candidate.estimates for limit in limits):
        return None
    likely = {m: _typical(candidate.estimates[m], gap, len(solid)) for m, gap in gaps.items()}
    for more in range(1, MOST_WINDOWS - len(solid) + 1):
        if judge(pool_windows([*solid, *[likely] * more]), limits) is Verdict.FEASIBLE:
            return more
    return None


def _typical(pool: Estimate, gap: float, windows: int) -> Estimate:
    """Return one more window like those behind a pooled estimate."""
    return replace(
        pool,
        stderr=pool.stderr * math.sqrt(windows),
        n=max(1, pool.n // windows),
        low=pool.mean - gap * abs(pool.mean),
        high=pool.mean + gap * abs(pool.mean),
    )


def _gap(estimate: Estimate, limit: Limit) -> float:
    return estimate.high - estimate.mean if limit.sign > 0.0 else estimate.mean - estimate.low


def _solid(trial: Trial) -> bool:
    return trial.state is TrialState.COMPLETED and not trial.censored
