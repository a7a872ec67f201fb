"""The one owner of "safe to try", "safe to hold" and "abort now". Pure: numbers in, answer out.

The optimiser masks with it, the loop vets every policy's answer with it, the agent aborts by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.core import (
    Estimate,
    Evidence,
    Limit,
    Setting,
    Study,
    Trial,
    TrialState,
    TuningError,
    Verdict,
    judge,
)

ABORT_MARGIN = 0.1
"""A window is cut short only when its proven value is this share beyond the limit: our choice."""

MOST_FAILURES = 2
"""A setting that failed this often is not tried again."""


def clearly_broken(estimates: Mapping[str, Estimate], limits: Sequence[Limit]) -> Limit | None:
    """Return the limit that a running window has broken beyond doubt, None while there is none.

    Beyond doubt: the near 95 % bound lies outside the limit and the estimate itself is at least a
    tenth beyond it, so that a window at the very edge is measured to its end.
    """
    for limit in limits:
        estimate = estimates.get(limit.metric)
        if estimate is None or limit.verdict(estimate) is not Verdict.INFEASIBLE:
            continue
        if limit.sign * (estimate.mean - limit.value) >= ABORT_MARGIN * limit.value:
            return limit
    return None


def may_hold(estimates: Mapping[str, Estimate], limits: Sequence[Limit] | None) -> bool:
    """Return whether a setting that showed these numbers may be deployed: only what is feasible."""
    return limits is not None and judge(estimates, limits) is Verdict.FEASIBLE


def objection(
    study: Study, evidence: Evidence, trials: Sequence[Trial], setting: Setting
) -> str | None:
    """Return why a setting must not be tried, None where nothing speaks against it.

    It must be a point of the space, must not have failed twice, and must not be one whose windows
    have proven a limit broken.
    """
    try:
        study.space.check(setting)
    except TuningError as error:
        return str(error)
    failures = [t for t in trials if t.state is TrialState.FAILED and t.tries(setting)]
    if len(failures) >= MOST_FAILURES:
        return f"it failed {len(failures)} times: {failures[-1].reason}"
    known = evidence.of(setting)
    if known is not None and known.verdict is Verdict.INFEASIBLE:
        return "its windows have proven a limit broken"
    return None
