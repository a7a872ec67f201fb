"""Why a study may not begin a trial now: a freeze, a closed window, or a used budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tuner.core import POWER, Exploration, Past, Phase, Study, Trial, called
from tuner.moments import when
from tuner.study.maintenance_windows import wait_for_window


def waits_to_explore(exploration: Exploration, now: datetime) -> str:
    """Return why a study may measure only its hold; empty if it may measure more."""
    if exploration.frozen:
        return f"frozen: {exploration.frozen}"
    return wait_for_window(exploration, now)


def over_budget(study: Study, trials: Sequence[Trial], now: datetime) -> str:
    """Return why no tuning trial may begin yet, by the budgets of time and energy; empty if one may.

    Baseline and confirming windows are not held back: windows that are compared must be close in
    time.
    """
    limits = study.exploration
    if (
        study.phase is not Phase.TUNING
        or min(limits.max_time_share, limits.max_energy_share) == 1.0
    ):
        return ""
    tried = [t for t in trials if t.phase is Phase.TUNING and not study.rests(t.setting)]
    elapsed_s = (now - study.created_at).total_seconds()
    used_s = sum(((t.ended_at or now) - t.started_at).total_seconds() for t in tried)
    as_baseline_s = 0.0
    if limits.max_energy_share < 1.0:
        as_baseline_s = _baseline_seconds(study, trials, tried)
    for resource, used, share in (
        ("time", used_s, limits.max_time_share),
        ("energy", as_baseline_s, limits.max_energy_share),
    ):
        if used > share * elapsed_s:
            due = study.created_at + timedelta(seconds=used / share)
            return (
                f"exploring used {used / max(elapsed_s, used):.1%} of the {resource} (limit {share:.1%}); "
                f"the next trial may start at {when(due)}"
            )
    return ""


def _baseline_seconds(study: Study, trials: Sequence[Trial], tried: Sequence[Trial]) -> float:
    """Return the seconds in which the baseline would have used the energy of some trials."""
    power = called(POWER, study.quantities)
    baseline = Past(study=study, trials=tuple(trials)).evidence.baseline.get(power)
    if baseline is None or baseline.mean <= 0.0:
        return 0.0
    windows = [(t.measurement, t.shown[power]) for t in tried if t.measurement and power in t.shown]
    used_j = sum((w.seconds + w.overhead_s) * shown.mean for w, shown in windows)
    return used_j / baseline.mean
