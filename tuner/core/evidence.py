"""What the trials of a study show, derived on every read and never stored.

Whoever changes a constraint re-judges all history: these functions are the only judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.core.goals import Limit, Verdict, judge, limits
from tuner.core.knobs import Setting, SettingKey, setting_key
from tuner.core.measurements import Estimate, pooled
from tuner.core.quantities import UNDECLARED, Quantities, quantity_of
from tuner.core.studies import Study
from tuner.core.tails import pooled_tail
from tuner.core.trials import Phase, Trial, TrialState

RATE_BAND = 0.2
"""Windows whose arrival rates differ by more than this share are not compared with each other."""


def counted(study: Study, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials that still count for the study, in order of number."""
    return tuple(
        sorted((t for t in trials if t.number >= study.since_trial), key=lambda t: t.number)
    )


def trials_spent(trials: Iterable[Trial]) -> int:
    """Return how many trials were spent on tuning; those ended from outside do not count."""
    return sum(t.phase is Phase.TUNING and t.state is not TrialState.ABORTED for t in trials)


def rate_of(trial: Trial) -> float:
    """Return the arrival rate a trial was measured under; 0 where nobody offered one."""
    return trial.measurement.load.arrival_rate_per_s if trial.measurement is not None else 0.0


def same_band(rate: float, other: float) -> bool:
    """Return whether two arrival rates may be compared; an unknown rate (0) may be with any."""
    if rate <= 0.0 or other <= 0.0:
        return True
    return abs(rate - other) <= RATE_BAND * max(rate, other)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting with everything its windows showed, pooled, and the verdict on it.

    `deployable` is False while no completed window, measured to its end, speaks for it.
    """

    setting: Setting
    estimates: Mapping[str, Estimate]
    trials: tuple[Trial, ...]
    verdict: Verdict
    deployable: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything derived from the trials at once: baseline, limits and the settings tried.

    `limits` is None while one of them is relative to a baseline that has not been measured, or is not
    positive.
    """

    baseline: Mapping[str, Estimate]
    limits: tuple[Limit, ...] | None
    candidates: tuple[Candidate, ...]
    since_trial: int
    quantities: Quantities = field(default_factory=dict)

    @property
    def broken(self) -> Limit | None:
        """The first limit that the baseline is proven to break: what keeps it may cost more then."""
        for limit in self.limits or ():
            if limit.verdict(self.baseline.get(limit.metric)) is Verdict.INFEASIBLE:
                return limit
        return None

    def of(self, setting: Setting) -> Candidate | None:
        """Return what is known of one setting, None where it was never measured."""
        key = setting_key(setting)
        return next((c for c in self.candidates if setting_key(c.setting) == key), None)

    def verdict(self, trial: Trial) -> Verdict | None:
        """Return the verdict on one trial's own window; None where it is no evidence (any more)."""
        counts = trial.state.evidence and trial.number >= self.since_trial
        if not counts or trial.measurement is None or self.limits is None:
            return None
        return trial_verdict(trial, self.limits)


def trial_verdict(trial: Trial, in_force: Sequence[Limit]) -> Verdict:
    """Judge one window by what it showed, against the limits of today."""
    return judge(trial.shown, in_force)


def weigh(study: Study, trials: Iterable[Trial]) -> Evidence:
    """Derive baseline, limits and candidates from the trials that still count.

    Where windows have an arrival rate, only those in the band of the latest baseline window count:
    what was fast by night says nothing of the day.
    """
    useful = [t for t in counted(study, trials) if t.state.evidence]
    solid = [t for t in useful if t.tries(study.baseline) and t.solid]
    rate = rate_of(solid[-1]) if solid else 0.0
    like = [t.shown for t in solid if same_band(rate_of(t), rate)]
    baseline = pool_windows(like, study.quantities)
    in_force = limits(study.constraints, baseline)
    groups: dict[SettingKey, list[Trial]] = {}
    for trial in useful:
        if not same_band(rate_of(trial), rate):
            continue
        groups.setdefault(setting_key(trial.setting), []).append(trial)
    candidates = tuple(_candidate(study, group, in_force) for group in groups.values())
    return Evidence(baseline, in_force, candidates, study.since_trial, study.quantities)


def ranked(study: Study, evidence: Evidence) -> tuple[Candidate, ...]:
    """Return the feasible, deployable candidates, best objective first."""
    fit = [c for c in evidence.candidates if c.verdict is Verdict.FEASIBLE and c.deployable]
    scored = [(c, study.objective.score(c.estimates)) for c in fit]
    known = [(c, study.objective.sign * score.mean) for c, score in scored if score is not None]
    return tuple(c for c, _ in sorted(known, key=lambda item: item[1]))


def incumbent(study: Study, evidence: Evidence) -> Candidate | None:
    """Return the best feasible setting measured so far, None where there is none."""
    return next(iter(ranked(study, evidence)), None)


def pool_windows(
    windows: Sequence[Mapping[str, Estimate]], declared: Quantities = UNDECLARED
) -> dict[str, Estimate]:
    """Return one estimate per metric over several windows of one setting."""
    names = dict.fromkeys(name for window in windows for name in window)
    pools = {name: pooled_tail if quantity_of(name, declared).tail else pooled for name in names}
    return {name: pool([w[name] for w in windows if name in w]) for name, pool in pools.items()}


def _candidate(study: Study, group: Sequence[Trial], in_force: Sequence[Limit] | None) -> Candidate:
    """Pool a setting's completed windows, cut-short ones as bounds; inconclusive ones only alone."""
    completed = [t for t in group if t.state is TrialState.COMPLETED]
    estimates = pool_windows([t.shown for t in completed or group], study.quantities)
    verdict = Verdict.UNSURE if in_force is None else judge(estimates, in_force)
    deployable = any(t.solid for t in group)
    return Candidate(group[0].setting, estimates, tuple(group), verdict, deployable)
