"""Windows of a study moved to one load: two settings are compared as if the same load had arrived.

A production load cannot be requested, and an item takes less energy the more of them arrive. Without
this, the difference between the loads of two windows hides the gain of a setting.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tuner.core.knobs import SettingKey, setting_key
from tuner.core.measurements import PRIOR_WINDOWS, Estimate
from tuner.core.quantities import Quantities, quantity_of
from tuner.core.trials import Trial, TrialState

__all__ = ["PEAK", "LoadTrend", "at_equal_load", "load_trend", "peak_name"]

SAME_LOAD = 1.0 + 1e-9
PEAK = "_peak"
"""End of the name of a window's highest load in its context."""


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
    if max(met) < min(met) * SAME_LOAD:
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
