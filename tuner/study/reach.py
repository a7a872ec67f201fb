"""How far up the load a setting is confirmed when the load cannot be requested.

Limits are judged at the highest load of enough windows: a setting reaches up to there. Its gain is
judged against the baseline at the same load; the change of a metric with the load is fitted to the
windows of all settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tuner import guard
from tuner.core import (
    LOAD_NEAR,
    LOAD_REACH,
    LOAD_STEP,
    Estimate,
    LoadTrend,
    Past,
    Phase,
    Setting,
    Study,
    Trial,
    TrialState,
    Worth,
    burst_names,
    confirms_at,
    improvement,
    is_near,
    load_trend,
    pool_windows,
    quantity_of,
    setting_key,
    windows,
)
from tuner.study.confirm import (
    CONFIRM_TRIES,
    CONFIRM_WINDOWS,
    PENDING,
    ConfirmResult,
    Duel,
    compared,
    lost,
)

Windows = Sequence[tuple[float, Trial]]
"""Windows, each with its measured load."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The highest confirmed load of a setting, 0 for none; why; baseline and setting there; its bursts."""

    load: float
    result: ConfirmResult
    duel: Duel | None = None
    bursts: tuple[float, ...] = ()

    def saving(self, study: Study) -> float:
        """Return the setting's gain there, as a share if there is one; -inf if unknown."""
        if self.duel is None:
            return -math.inf
        before, after = map(study.objective.score, self.duel)
        if before is None or after is None:
            return -math.inf
        return improvement(before, after, study.objective.sign).amount.mean


def reach_of(past: Past, setting: Setting, low: float = 0.0) -> Reach:
    """Return how far a setting is confirmed, by its confirming windows at loads from `low` on."""
    own = own_windows(past, setting, low)
    failed = [t for _, t in own if t.state is TrialState.FAILED]
    if len(failed) >= guard.MOST_FAILURES:
        return Reach(0.0, lost(f"trial {failed[-1].number} failed: {failed[-1].reason}"))
    moving = _moving(past, own)
    result, unproven = PENDING, None
    for load in sorted({x for x, t in own if t.solid}, reverse=True):
        there = [t for x, t in own if t.solid and confirms_at(x, load)]
        result, duel = _confirmed(past, load, own, there)
        if not result.won and load == moving:
            there = [t for _, t in own if t.solid]
            result, duel = _confirmed(past, load, own, there)
        if result.won:
            as_high = [t for x, t in own if t.solid and x * LOAD_REACH >= load]
            return Reach(load, result, duel, _bursts(past, as_high))
        if _may_gain(past, own, result, duel):
            unproven = duel
    if unproven is not None:
        return Reach(0.0, PENDING, unproven)
    # A setting that loses at its lowest load loses at all.
    return Reach(0.0, result)


def _may_gain(past: Past, own: Windows, result: ConfirmResult, duel: Duel | None) -> bool:
    """Return whether further windows may prove a gain that is worth holding."""
    few = sum(t.solid for _, t in own) < CONFIRM_TRIES
    gain = Reach(0.0, result, duel).saving(past.study)
    return few and result.no_gain and gain > past.study.exploration.min_saving


def _moving(past: Past, own: Windows) -> float:
    """Return the load up to which a setting is confirmed under a moving load, 0 for none.

    A load that moves from window to window may not come twice: then the tails of all windows count
    together, if each of them met the limits, up to the second highest load. Not for limits that are
    relative to the baseline, which differ from load to load.
    """
    whole, limits = [(x, t) for x, t in own if t.solid], past.evidence.limits or ()
    if len(whole) < CONFIRM_TRIES or any(c.relative for c in past.study.constraints):
        return 0.0
    kept = all(
        limit.metric in t.shown and limit.holds(t.shown[limit.metric].mean)
        for _, t in whole
        for limit in limits
    )
    load = sorted(x for x, _ in whole)[-CONFIRM_WINDOWS]
    cut = any(t.censored and x <= load * LOAD_STEP**2 for x, t in own)
    return load if kept and not cut else 0.0


def _bursts(past: Past, own: Sequence[Trial]) -> tuple[float, ...]:
    """Return the bursts that enough of a setting's windows had; none where unknown."""
    names = burst_names(past.study.terms.plan_by)
    there = [t.ran_at for t in own]
    seen = [[at[name] for at in there if name in at] for name in names]
    if min(map(len, seen)) < CONFIRM_WINDOWS:
        return ()
    return tuple(sorted(levels, reverse=True)[CONFIRM_WINDOWS - 1] for levels in seen)


def own_windows(past: Past, setting: Setting, low: float = 0.0) -> Windows:
    """Return a setting's confirming windows at loads from `low` on, and those compared with them."""
    by = past.study.terms.plan_by
    ended = windows(past.trials, setting, phase=Phase.CONFIRMING, least=Worth.ENDED)
    loads = ((t.ran_at.get(by, low), t) for t in ended)
    return [(x, t) for x, t in loads if x * LOAD_STEP**2 >= low]


def baseline_windows(past: Past, load: float) -> Windows:
    """Return the baseline's windows of any phase near a load: they did not select it."""
    return [(x, t) for x, t in _solid_near(past, load) if t.tries(past.study.baseline)]


def _confirmed(
    past: Past, load: float, own: Windows, there: Sequence[Trial]
) -> tuple[ConfirmResult, Duel | None]:
    """Judge a setting at a load: limits by the windows given, the gain by all of its near the load."""
    study = past.study
    bad = next((t for x, t in own if t.censored and confirms_at(load, x)), None)
    if bad is not None:
        return lost(f"trial {bad.number} {bad.state}: {bad.reason}"), None
    if len(there) < CONFIRM_WINDOWS:
        return PENDING, None
    evidence = past.at({study.terms.plan_by: load})
    shown = pool_windows([t.shown for t in there], study.quantities)
    if not guard.may_hold(shown, evidence.limits):
        may_be = guard.may_be_shown(shown, evidence.limits or (), study.quantities)
        unproven = lost("its confirming windows do not prove that it meets the limits")
        return (PENDING if evidence.limits is None or may_be else unproven), None
    near = [
        (x, t) for x, t in own if t.solid and x <= load * LOAD_STEP**2 and x * LOAD_NEAR >= load
    ]
    rival = baseline_windows(past, load)
    if len(rival) < CONFIRM_WINDOWS:
        return PENDING, None
    duel = _beside(past, load, rival, near, shown)
    return compared(study, evidence, *duel), duel


def _beside(
    past: Past, load: float, rival: Windows, own: Windows, shown: Mapping[str, Estimate]
) -> Duel:
    """Return the metrics of baseline and setting at the mean load of the setting's windows.

    Of tails, `shown` has the setting's at its highest load; the baseline's are from any near load.
    """
    study = past.study
    at = fmean(math.log(x) for x, _ in own)
    off = abs(fmean(math.log(x) for x, _ in rival) - at)
    solid = _solid_near(past, load)
    trends = {
        name: load_trend(
            (setting_key(t.setting), x, t.shown[name]) for x, t in solid if name in t.shown
        )
        for name in shown
        if not quantity_of(name, study.quantities).tail
    }
    before, after = (
        pool_windows([_moved(x, t, at, trends) for x, t in some], study.quantities)
        for some in (rival, own)
    )
    for name, trend in trends.items():
        if (seen := before.get(name)) is not None:
            doubt = seen.mean * trend.stderr * off
            before[name] = replace(seen, stderr=math.hypot(seen.stderr, doubt))
    tails = {name: seen for name, seen in shown.items() if name not in trends}
    return before, {**after, **tails}


def _moved(
    load: float, trial: Trial, at: float, trends: Mapping[str, LoadTrend]
) -> dict[str, Estimate]:
    """Return a window's metrics, moved to another load along the trends; `at` is its logarithm."""
    moved = dict(trial.shown)
    for name, trend in trends.items():
        if (e := moved.get(name)) is not None:
            by = math.exp(trend.exponent * (at - math.log(load)))
            mean, error = by * e.mean, by * trend.noise
            moved[name] = replace(
                e,
                mean=mean,
                stderr=error * e.stderr,
                low=mean - error * (e.mean - e.low),
                high=mean + error * (e.high - e.mean),
            )
    return moved


def _solid_near(past: Past, load: float) -> Windows:
    """Return the complete windows of any setting near a load."""
    by = past.study.terms.plan_by
    solid = [(t.ran_at.get(by, 0.0), t) for t in windows(past.trials, least=Worth.SOLID)]
    return [(x, t) for x, t in solid if is_near(x, load)]
