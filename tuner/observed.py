"""What a tuner sees that believes what it measured: observed means, and nothing of their doubt.

The policies that others' tuners are made into choose by it; they differ only in what to try next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import (
    Candidate,
    Done,
    Limit,
    Objective,
    Past,
    Plan,
    Setting,
    SettingKey,
    TrialState,
    Wait,
    counted,
    setting_key,
    trials_spent,
    weigh,
)

LEAST_RATIO = 1e-9
"""What is this far under a limit, or not above zero at all, counts as exactly so far."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One setting with its observed means. Settings in the order of their first window.

    `loss` is the objective turned so that less is better. `breaches` has for each limit by how much
    it is overstepped, as the logarithm of the ratio: at or below 0 where it is kept.
    """

    setting: Setting
    loss: float
    breaches: tuple[float, ...]

    @property
    def feasible(self) -> bool:
        """Whether the means keep every limit."""
        return all(breach <= 0.0 for breach in self.breaches)


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen so far, and what is left to try: never empty.

    `seen` begins with the baseline. `spent` is how many trials there were.
    """

    baseline: Setting
    seen: Mapping[SettingKey, Observation]
    untried: tuple[Setting, ...]
    spent: int


def observed(past: Past) -> Observed | Wait | Done:
    """Return what to choose by while there is something to choose, else what to answer.

    Done once the trials are spent or every setting was tried: with the setting of the best observed
    mean among those whose means keep the limits, or the baseline where there is none.
    """
    study, trials = past.study, counted(past.study, past.trials)
    evidence = weigh(study, trials)
    if evidence.limits is None or study.objective.metric not in evidence.baseline:
        return Wait("the baseline has not been measured yet")
    seen: dict[SettingKey, Observation] = {}
    deployable: list[Observation] = []
    for candidate in evidence.candidates:
        found = _observation(candidate, study.objective, evidence.limits)
        if found is not None:
            seen[setting_key(candidate.setting)] = found
            if candidate.deployable and found.feasible:
                deployable.append(found)
    tried = {setting_key(t.setting) for t in trials if t.state is not TrialState.ABORTED}
    untried = tuple(s for s in study.space.grid() if setting_key(s) not in tried)
    spent = trials_spent(trials)
    if spent < study.terms.trials and untried:
        return Observed(study.baseline, seen, untried, spent)
    if any(t.state is TrialState.RUNNING for t in trials):
        return Wait("the last trial is still running")
    best = min(deployable, key=lambda o: o.loss, default=None)
    why = "every setting was tried" if not untried else "all trials are used"
    if best is None:
        return Done(Plan.single(study.baseline), f"{why}; none was observed to keep the limits")
    return Done(Plan.single(best.setting), f"{why}; the best observed to keep the limits")


def _observation(
    candidate: Candidate, objective: Objective, limits: tuple[Limit, ...]
) -> Observation | None:
    """Return a candidate's means, None where one is missing."""
    means = {name: estimate.mean for name, estimate in candidate.estimates.items()}
    needed = [objective.metric, *(limit.metric for limit in limits)]
    if any(name not in means for name in needed):
        return None
    breaches = tuple(limit.sign * _log_ratio(means[limit.metric], limit.value) for limit in limits)
    return Observation(candidate.setting, objective.sign * means[objective.metric], breaches)


def _log_ratio(value: float, limit: float) -> float:
    """Return log(value / limit), finite even where the value is not above zero."""
    return math.log(max(value / limit, LEAST_RATIO))
