"""The evidence of a study's trials, derived on every read and never stored.

One selector says which trials are evidence for a question. After a change of the constraints these
functions judge all earlier trials anew; nothing else judges. A load that arrives cannot be requested, and
an item takes less energy the more of them arrive: so windows are compared as if at one load.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from statistics import fmean

from tuner.core.estimates import PRIOR_WINDOWS, Estimate, pooled, pooled_tail
from tuner.core.goals import Limit, Verdict, judge, limits
from tuner.core.knobs import Setting, SettingKey, setting_key
from tuner.core.plans import ANYWHERE, Context
from tuner.core.quantities import UNDECLARED, Quantities, quantity_of
from tuner.core.studies import Study
from tuner.core.trials import Phase, Trial, TrialState

_LOAD_BAND = 0.2
"""Windows whose loads differ by more than this share are not compared with each other."""
_SAME_LOAD = 1.0 + 1e-9
PEAK = "_peak"
"""End of the name of a window's highest load in its context."""


def counted(study: Study, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials that still count for the study, in order of number.

    Trials that were aborted from outside are left out: they show nothing of their setting. So are control
    windows: they serve the bill alone, and must not change the limits of a hold. If the study follows a
    load, all windows are moved to its mean.
    """
    own = [t for t in trials if t.number >= study.since_trial and not t.control]
    own.sort(key=lambda t: t.number)
    left, by = [t for t in own if t.state is not TrialState.ABORTED], study.terms.plan_by
    return at_equal_load(left, by, study.quantities) if by else tuple(left)


class Worth(IntEnum):
    """How much a trial shows; each includes the next ones."""

    BEGUN = 0
    ENDED = 1
    """Also without a result: failed or contaminated."""
    EVIDENCE = 2
    """Measured, maybe with too few data for a verdict."""
    COMPLETED = 3
    """Measured, maybe cut short for breaking a limit."""
    SOLID = 4


_WORTH = {
    TrialState.RUNNING: Worth.BEGUN,
    TrialState.INCONCLUSIVE: Worth.EVIDENCE,
    TrialState.COMPLETED: Worth.SOLID,
}


def windows(
    trials: Iterable[Trial],
    *settings: Setting,
    phase: Phase | None = None,
    since: int = 1,
    requested: Context | None = None,
    at: Context = ANYWHERE,
    least: Worth = Worth.BEGUN,
) -> list[Trial]:
    """Return the trials of any of these settings, all without one, that pass every given rule.

    `requested` is the exact requested load, `at` a load that they were measured at; `since` is the first
    number.
    """
    return [
        t for t in trials
        if phase in (None, t.phase) and t.number >= since and requested in (None, t.context)
        and _worth(t) >= least and (not settings or any(map(t.tries, settings)))
        and (not at or is_at(t.ran_at, at))
    ]  # fmt: skip


def _worth(trial: Trial) -> Worth:
    """Return the worth of a trial as evidence."""
    return Worth.COMPLETED if trial.censored else _WORTH.get(trial.state, Worth.ENDED)


def trials_spent(trials: Iterable[Trial]) -> int:
    """Return the number of counted trials that were spent on tuning."""
    return len(windows(trials, phase=Phase.TUNING))


def unlike(context: Context, other: Context) -> str | None:
    """Return the first signal in which two loads differ, None if their windows may be compared.

    Only signals that both loads have are compared, and peaks are ignored.
    """
    for name in sorted(context.keys() & other.keys()):
        value, beside = context[name], other[name]
        if name.endswith(PEAK):
            continue
        if abs(value - beside) > _LOAD_BAND * max(abs(value), abs(beside)):
            return name
    return None


def comparable(context: Context, other: Context) -> bool:
    """Return whether windows measured under two loads may be compared."""
    return unlike(context, other) is None


def is_at(measured_at: Context, context: Context) -> bool:
    """Return whether a window's load has every signal of another load and is comparable with it."""
    return context.keys() <= measured_at.keys() and comparable(measured_at, context)


def is_like(measured_at: Context, at: Context, present: Context) -> bool:
    """Return whether a window is at a load, if one was requested, else comparable with the present load."""
    return is_at(measured_at, at) if at else comparable(measured_at, present)


def baseline_context(study: Study, trials: Iterable[Trial]) -> Context:
    """Return the load of the latest baseline window without a requested load; empty if not measured."""
    solid = windows(counted(study, trials), study.baseline, requested=ANYWHERE, least=Worth.SOLID)
    return solid[-1].ran_at if solid else ANYWHERE


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
        return judge(trial.shown, self.limits)


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


def peak_name(signal: str) -> str:
    """Return the name of a signal's highest level within a window."""
    return f"{signal}{PEAK}"


def at_equal_load(trials: Sequence[Trial], by: str, quantities: Quantities) -> tuple[Trial, ...]:
    """Return the trials as if each had met the mean load of all; `by` is the signal of the load.

    The change of a metric with the load is fitted to the windows of all settings, with one exponent.
    Tails and peaks stay: they are evidence for the load that arrived. A window that met no load compares
    with none that did, so it counts as contaminated.
    """
    loads = {t.number: load for t in trials if (load := t.ran_at.get(by, 0.0)) > 0.0}
    solid = [t for t in trials if t.solid and t.number in loads]
    met = loads.values()
    if not solid:
        return tuple(trials)
    trials = [
        replace(t, state=TrialState.CONTAMINATED, reason=f"it met no {by}")
        if t.state.evidence and t.number not in loads
        else t
        for t in trials
    ]
    if max(met) < min(met) * _SAME_LOAD:
        return tuple(trials)  # they are at one load: a second move would only shrink the errors
    at = fmean(math.log(loads[t.number]) for t in solid)
    names = dict.fromkeys(n for t in solid for n in t.shown if not quantity_of(n, quantities).tail)
    trends = {
        name: load_trend(
            (setting_key(t.setting), loads[t.number], t.shown[name])
            for t in solid
            if name in t.shown
        )
        for name in names
    }
    return tuple(
        _moved(t, by, at, loads[t.number], trends) if t.number in loads else t for t in trials
    )


def _moved(trial: Trial, by: str, at: float, load: float, trends: Mapping[str, LoadTrend]) -> Trial:
    """Return a trial moved to another load along the trends; `at` is the logarithm of that load."""
    window = trial.measurement
    if window is None:
        return trial
    estimates = {
        name: e if (trend := trends.get(name)) is None else trend.moved(e, at - math.log(load))
        for name, e in window.estimates.items()
    }
    others = {n: v for n, v in window.context.items() if not n.startswith(by) or n == peak_name(by)}
    context = {**others, by: math.exp(at)}
    return replace(trial, measurement=replace(window, estimates=estimates, context=context))


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """The change of a metric with the load: an exponent, its standard error, and the noise.

    `noise` is the windows' scatter about the trend as a multiple of their standard errors. The standard
    error of a window includes the changes of the load within it, most of which the trend explains.
    """

    exponent: float
    stderr: float
    noise: float = 1.0

    def moved(self, seen: Estimate, by: float) -> Estimate:
        """Return an estimate at another load; `by` is the logarithm of the ratio of the loads."""
        mean = math.exp(self.exponent * by) * seen.mean
        noise = self.noise * math.exp(self.exponent * by)
        stderr = math.hypot(noise * seen.stderr, mean * self.stderr * by)
        wider = stderr / seen.stderr if seen.stderr > 0.0 else noise
        return replace(
            seen,
            mean=mean,
            stderr=stderr,
            low=mean - wider * (seen.mean - seen.low),
            high=mean + wider * (seen.high - seen.mean),
        )


def load_trend(windows: Iterable[tuple[SettingKey, float, Estimate]]) -> LoadTrend:
    """Return the trend of a metric, with an exponent common to all settings.

    Without data the exponent is 0 ± 1: with idle power an item's energy falls at most as fast as the
    load rises. The noise starts at 1, worth three windows, and approaches the scatter of the windows.
    """
    groups: dict[SettingKey, list[tuple[float, float, float]]] = defaultdict(list)
    for key, load, seen in windows:
        if seen.mean <= 0.0:
            return LoadTrend(0.0, 0.0)
        groups[key].append((math.log(load), math.log(seen.mean), seen.stderr / seen.mean))
    apart = [
        (x - fmean(p[0] for p in group), y - fmean(p[1] for p in group), error)
        for group in groups.values()
        for x, y, error in group
    ]
    freedom = len(apart) - len(groups) - 1
    spread = math.fsum(x * x for x, _, _ in apart)
    if freedom < 1 or spread <= 0.0:
        return LoadTrend(0.0, 1.0)
    exponent = math.fsum(x * y for x, y, _ in apart) / spread
    misses = [(y - exponent * x, error) for x, y, error in apart]
    variance = math.fsum(miss * miss for miss, _ in misses) / freedom / spread
    noise = 1.0
    if all(error > 0.0 for _, error in misses):
        squares = math.fsum((miss / error) ** 2 for miss, error in misses)
        noise = math.sqrt((PRIOR_WINDOWS + squares) / (PRIOR_WINDOWS + freedom))
    return LoadTrend(exponent / (1.0 + variance), math.sqrt(variance / (1.0 + variance)), noise)
