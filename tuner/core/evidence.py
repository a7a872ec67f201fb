"""The evidence of a study's trials, derived on every read and never stored.

After a change of the constraints these functions judge all earlier trials anew; nothing else judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.core.goals import Limit, Verdict, judge, limits
from tuner.core.knobs import Setting, SettingKey, setting_key
from tuner.core.measurements import Estimate, pooled
from tuner.core.plans import ANYWHERE, Context
from tuner.core.quantities import UNDECLARED, Quantities, quantity_of
from tuner.core.selection import Worth, baseline_context, counted, is_at, is_like, windows
from tuner.core.studies import Study
from tuner.core.tails import pooled_tail
from tuner.core.trials import Trial, TrialState

__all__ = [
    "Candidate",
    "Evidence",
    "incumbent",
    "pool_windows",
    "ranked",
    "trial_verdict",
    "weigh",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting with the pooled estimates of its windows, and the verdict on them.

    `deployable` is False while the setting has no completed window that was measured to its end.
    """

    setting: Setting
    estimates: Mapping[str, Estimate]
    trials: tuple[Trial, ...]
    verdict: Verdict
    deployable: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is derived from the trials: the baseline, the limits and the tried settings.

    `limits` is None while one of them is relative to a baseline that has not been measured, or is 0.
    """

    baseline: Mapping[str, Estimate]
    limits: tuple[Limit, ...] | None
    candidates: tuple[Candidate, ...]
    since_trial: int
    quantities: Quantities = field(default_factory=dict)

    @property
    def broken(self) -> Limit | None:
        """The first limit that the baseline is proven to break; None if it breaks none.

        A setting that keeps such a limit may have a worse objective than the baseline.
        """
        return self.broken_by(self.baseline)

    def broken_by(self, estimates: Mapping[str, Estimate]) -> Limit | None:
        """Return the first limit that estimates are proven to break; None if they break none."""
        for limit in self.limits or ():
            if limit.verdict(estimates.get(limit.metric)) is Verdict.INFEASIBLE:
                return limit
        return None

    def of(self, setting: Setting) -> Candidate | None:
        """Return the candidate of one setting, None if it was never measured."""
        key = setting_key(setting)
        return next((c for c in self.candidates if setting_key(c.setting) == key), None)

    def verdict(self, trial: Trial) -> Verdict | None:
        """Return the verdict on one trial's own window; None if it is no evidence or a limit is unknown."""
        counts = trial.state.evidence and trial.number >= self.since_trial
        if not counts or trial.measurement is None or self.limits is None:
            return None
        return trial_verdict(trial, self.limits)


def trial_verdict(trial: Trial, in_force: Sequence[Limit]) -> Verdict:
    """Judge the estimates of one window by the limits now in force."""
    return judge(trial.shown, in_force)


def weigh(study: Study, trials: Iterable[Trial], at: Context | None = None) -> Evidence:
    """Derive baseline, limits and candidates from the trials that still count, measured at one load.

    `at` is that load; without it, the load of the latest baseline window that did not request one. A window
    that requested a load counts for the latter only if the baseline window shows the requested load, too:
    a setting that is fast at night may be slow by day.
    """
    useful = windows(counted(study, trials), least=Worth.EVIDENCE)
    at = at or ANYWHERE
    present = ANYWHERE if at else baseline_context(study, useful)
    useful = [
        t for t in useful if is_like(t.ran_at, at, present) and (at or is_at(present, t.context))
    ]
    like = [t.shown for t in windows(useful, study.baseline, least=Worth.SOLID)]
    baseline = pool_windows(like, study.quantities)
    in_force = limits(study.constraints, baseline)
    groups: dict[SettingKey, list[Trial]] = {}
    for trial in useful:
        groups.setdefault(setting_key(trial.setting), []).append(trial)
    candidates = tuple(_candidate(study, group, in_force) for group in groups.values())
    return Evidence(baseline, in_force, candidates, study.since_trial, study.quantities)


def ranked(study: Study, evidence: Evidence) -> tuple[Candidate, ...]:
    """Return the feasible, deployable candidates, best objective first."""
    fit = [c for c in evidence.candidates if c.verdict is Verdict.FEASIBLE and c.deployable]
    scored = [(c, study.objective.score(c.estimates)) for c in fit]
    rated = [(c, study.objective.sign * score.mean) for c, score in scored if score is not None]
    return tuple(c for c, _ in sorted(rated, key=lambda item: item[1]))


def incumbent(study: Study, evidence: Evidence) -> Candidate | None:
    """Return the best feasible, deployable candidate, None if no candidate is."""
    return next(iter(ranked(study, evidence)), None)


def pool_windows(
    windows: Sequence[Mapping[str, Estimate]], declared: Quantities = UNDECLARED
) -> dict[str, Estimate]:
    """Return one pooled estimate per metric over several windows of one setting."""
    names = dict.fromkeys(name for window in windows for name in window)
    pools = {name: pooled_tail if quantity_of(name, declared).tail else pooled for name in names}
    return {name: pool([w[name] for w in windows if name in w]) for name, pool in pools.items()}


def _candidate(study: Study, group: Sequence[Trial], in_force: Sequence[Limit] | None) -> Candidate:
    """Pool a setting's completed windows, those cut short as bounds; others only if none was completed."""
    completed = [t for t in group if t.state is TrialState.COMPLETED]
    estimates = pool_windows([t.shown for t in completed or group], study.quantities)
    verdict = Verdict.UNSURE if in_force is None else judge(estimates, in_force)
    deployable = any(t.solid for t in group)
    return Candidate(group[0].setting, estimates, tuple(group), verdict, deployable)
