"""What the trials of a study show, derived on every read and never stored.

Whoever changes a constraint re-judges all history: these functions are the only judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.core.goals import Limit, Verdict, judge, limits
from tuner.core.knobs import Setting, SettingKey, setting_key
from tuner.core.measurements import Estimate, Measurement, pooled
from tuner.core.studies import Study
from tuner.core.trials import Trial, TrialState

RATE_BAND = 0.2
"""Windows whose arrival rates differ by more than this share are not compared with each other."""


def counted(study: Study, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials that still count for the study, in order of number."""
    return tuple(
        sorted((t for t in trials if t.number >= study.since_trial), key=lambda t: t.number)
    )


def same_band(rate: float, other: float) -> bool:
    """Return whether two arrival rates may be compared; an unknown rate (0) may be with any."""
    if rate <= 0.0 or other <= 0.0:
        return True
    return abs(rate - other) <= RATE_BAND * max(rate, other)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting with everything its windows showed, pooled, and the verdict on it.

    `deployable` is False where only inconclusive or censored windows speak for it.
    """

    setting: Setting
    estimates: Mapping[str, Estimate]
    trials: tuple[Trial, ...]
    verdict: Verdict
    deployable: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything derived from the trials at once: baseline, limits and the settings tried.

    `limits` is None while one of them is relative to a baseline that has not been measured.
    """

    baseline: Mapping[str, Estimate]
    limits: tuple[Limit, ...] | None
    candidates: tuple[Candidate, ...]

    def of(self, setting: Setting) -> Candidate | None:
        """Return what is known of one setting, None where it was never measured."""
        key = setting_key(setting)
        return next((c for c in self.candidates if setting_key(c.setting) == key), None)

    def verdict(self, trial: Trial) -> Verdict | None:
        """Return the verdict on one trial's own window; None where it is no evidence."""
        if not trial.state.evidence or trial.measurement is None or self.limits is None:
            return None
        return trial_verdict(trial, self.limits)


def trial_verdict(trial: Trial, in_force: Sequence[Limit]) -> Verdict:
    """Judge one window. A window cut short for breaking a limit is worse than what it showed."""
    if trial.measurement is None:
        return Verdict.UNSURE
    if trial.censored:
        return Verdict.INFEASIBLE
    return judge(trial.measurement.estimates, in_force)


def weigh(study: Study, trials: Iterable[Trial]) -> Evidence:
    """Derive baseline, limits and candidates from the trials that still count."""
    useful = [t for t in counted(study, trials) if t.state.evidence and t.measurement is not None]
    baseline = pool_windows(_baseline_windows(study, useful))
    in_force = limits(study.constraints, baseline)
    groups: dict[SettingKey, list[Trial]] = {}
    for trial in useful:
        groups.setdefault(setting_key(trial.setting), []).append(trial)
    candidates = tuple(_candidate(group, in_force) for group in groups.values())
    return Evidence(baseline, in_force, candidates)


def ranked(study: Study, evidence: Evidence) -> tuple[Candidate, ...]:
    """Return the feasible, deployable candidates, best objective first."""
    metric, sign = study.objective.metric, study.objective.sign
    fit = [
        c
        for c in evidence.candidates
        if c.verdict is Verdict.FEASIBLE and c.deployable and metric in c.estimates
    ]
    return tuple(sorted(fit, key=lambda c: sign * c.estimates[metric].mean))


def incumbent(study: Study, evidence: Evidence) -> Candidate | None:
    """Return the best feasible setting measured so far, None where there is none."""
    return next(iter(ranked(study, evidence)), None)


def pool_windows(windows: Sequence[Measurement]) -> dict[str, Estimate]:
    """Return one estimate per metric over several windows of one setting."""
    names = dict.fromkeys(name for window in windows for name in window.estimates)
    return {
        name: pooled([w.estimates[name] for w in windows if name in w.estimates]) for name in names
    }


def _baseline_windows(study: Study, useful: Sequence[Trial]) -> list[Measurement]:
    """Return the windows at the baseline that share the latest one's arrival rate."""
    windows = [
        t.measurement
        for t in useful
        if t.tries(study.baseline)
        and t.state is TrialState.COMPLETED
        and not t.censored
        and t.measurement is not None
    ]
    if not windows:
        return []
    latest = windows[-1].load.arrival_rate_per_s
    return [w for w in windows if same_band(w.load.arrival_rate_per_s, latest)]


def _candidate(group: Sequence[Trial], in_force: Sequence[Limit] | None) -> Candidate:
    solid = [t for t in group if t.state is TrialState.COMPLETED and not t.censored]
    speaking = solid or list(group)
    estimates = pool_windows([t.measurement for t in speaking if t.measurement is not None])
    if in_force is None:
        verdict = Verdict.UNSURE
    elif any(t.censored for t in group) and not solid:
        verdict = Verdict.INFEASIBLE
    else:
        verdict = judge(estimates, in_force)
    return Candidate(group[0].setting, estimates, tuple(group), verdict, bool(solid))
