"""Composes the assignments of a device from a study and its trials."""

from __future__ import annotations

from collections.abc import Sequence

import db
from tuner.core import (
    CYCLE,
    MOST_WINDOWS,
    Lease,
    Level,
    Limit,
    Mode,
    Past,
    Plan,
    Setting,
    Study,
    Trial,
    Verdict,
    baseline_context,
    quantity_of,
    weigh,
)
from tuner.core import limits as in_force
from tuner.study.apart import ALIKE, Shares, own_limits
from tuner.study.moves import needed_metrics
from tuner.wire import Assignment, HoldOrder, Poll, Release, readable

OBSERVE_S = 60.0
MOST_WINDOWS_PER_S = 40.0
"""Held windows per second that a tuner accepts; beyond that it requests fewer from each device."""
RAREST_REPORT_S = 240.0
"""Longest interval in s: without a time of its own, a held window covers up to 300 s in the bill."""


ENOUGH_REQUESTS = 299
"""The fewest requests whose p99 has an upper bound (`tuner.core.estimates`)."""
LATEST = 4
"""A moving load has been low in one of this number of latest windows, or is not expected to be now."""
SPARE = 1.2
"""Requests arrive at random: of windows so much longer than needed on average, almost all suffice."""
MOST_LONGER = 10.0
"""The longest window at a low rate, relative to the usual longest: our choice."""
FEW_ITEMS = 20
"""Of windows with fewer items on average, some have none and show nothing: our choice."""


def report_every_s(devices: int) -> float:
    """Return the interval between a device's windows in s, in whole minutes; 0 means every window."""
    return min(RAREST_REPORT_S, OBSERVE_S * (devices / MOST_WINDOWS_PER_S // OBSERVE_S))


@readable
def assignment(
    study: Study,
    trials: Sequence[Trial],
    trial: Trial,
    lease: Lease,
    lease_s: float,
    shares: Shares = ALIKE,
) -> Assignment:
    """Return the order to try a setting; the baseline's own windows are never cut short.

    `shares` converts the study's limits for a device that tries the setting alone. If the load
    cycles, a window is one whole cycle. A window at a requested load is compared with that load; in
    a continuous study any load is accepted.
    """
    at_baseline = trial.tries(study.baseline)
    by = study.terms.plan_by
    any_load = at_baseline or bool(by) or study.terms.mode is Mode.CONTINUOUS
    if at_baseline:
        limits: Sequence[Limit] = ()
    elif by and by not in trial.context:  # its load is still unknown
        limits = in_force([c for c in study.constraints if not c.relative], {}) or ()
    else:
        limits = weigh(study, trials, trial.context).limits or ()
    return Assignment(
        study=study.id,
        revision=study.revision,
        trial=trial.number,
        attempt=lease.attempt,
        token=lease.token,
        nonce=lease.nonce,
        lease_s=lease_s,
        phase=trial.phase,
        setting=trial.setting,
        baseline=study.baseline,
        metrics=needed_metrics(study),
        limits=own_limits(limits, shares),
        window_s=max(study.terms.window_s, trial.context.get(CYCLE, 0.0)),
        max_window_s=longest_window_s(study, trials),
        context=trial.context,
        expected=trial.context or ({} if any_load else dict(baseline_context(study, trials))),
        follows=by,
        plan=trial.plan,
        why=trial.why,
    )


def longest_window_s(study: Study, trials: Sequence[Trial]) -> float:
    """Return the longest that a window may last, in s.

    If a plan follows a load and no longest window was given, it is longer where one of the latest
    windows shows that too few requests arrive to bound a tail.
    """
    terms = study.terms
    if not terms.plan_by or terms.max_window_s != MOST_WINDOWS * terms.window_s:
        return terms.max_window_s
    tails = [name for name in needed_metrics(study) if quantity_of(name, study.quantities).tail]
    whole = [t for t in trials if t.state.evidence and not t.censored][-LATEST:]
    needed_s = [
        SPARE * ENOUGH_REQUESTS * t.measurement.seconds / t.shown[name].n
        for t in whole
        for name in tails
        if t.measurement is not None and name in t.shown
    ]
    return min(max(terms.max_window_s, *needed_s, 0.0), MOST_LONGER * terms.max_window_s)


def held_window_s(study: Study, trials: Sequence[Trial], plan: Plan) -> float:
    """Return how long a held window lasts in s: where items are few, as long as the longest trial's.

    A window without an item reports no energy. In shorter windows that would happen more often than in
    the trials, and what the held setting used in them would count as saved. Within a window no stop is
    heard and no row of a plan follows the load: it lasts at most `OBSERVE_S`, a plan's as usual.
    """
    length = study.terms.window_s
    if len(plan.rows) > 1:
        return length
    compared = (study.baseline, plan.rows[0].setting)
    whole = [
        t.measurement
        for t in trials
        if t.state.evidence and not t.control and any(map(t.tries, compared))
    ]
    few = [
        w.seconds
        for w in whole
        if w is not None and 0.0 < w.load.completed * length < FEW_ITEMS * w.seconds
    ]
    return max(length, min(max(few, default=0.0), study.terms.max_window_s, OBSERVE_S))


@readable
def hold(study: Study, trials: Sequence[Trial], plan: Plan) -> HoldOrder:
    """Return the order to hold a plan; a held baseline has no limits that end it."""
    past = Past(study=study, trials=tuple(trials))
    return HoldOrder(
        study=study.id,
        revision=study.revision,
        plan=plan,
        baseline=study.baseline,
        limits=tuple(
            () if study.rests(row.setting) else past.behind(plan, row).limits or ()
            for row in plan.rows
        ),
        metrics=needed_metrics(study),
        valid_for_s=study.terms.valid_for_s,
        observe_s=OBSERVE_S,
        window_s=held_window_s(study, trials, plan),
        follows=study.terms.plan_by,
    )


def stopped(stops: db.Stops, device: str, poll: Poll) -> Release | None:
    """Return the release that a stop of all devices or of this one requires; None without a stop.

    Notes whether the device is at its original setting: a poll comes between trials.
    """
    stop = stops.current(device)
    if stop is None:
        return None
    back = poll.applied.level in (Level.ORIGINAL, Level.FAILSAFE)
    if back is not (device in stop.back):
        stops.report(device, back=back)
    return Release(why=str(stop))


def limits_held(order: HoldOrder | None, revision: int, held: Setting) -> tuple[Limit, ...]:
    """Return the limits under which a setting is held at a revision; none for another order."""
    if order is None or order.revision != revision:
        return ()
    row = order.plan.row_of(held)
    return () if row is None else order.limits[row]


def outgrown(study: Study, trials: Sequence[Trial], held: Setting) -> bool:
    """Return whether a held setting is proven to break a limit that the baseline keeps.

    At every load that it was measured at: each row of a plan is held at its own. If the load cannot
    be set, no trial's windows cover all loads, and the agent's own windows judge the held setting.
    """
    if study.terms.plan_by:
        return False
    past = Past(study=study, trials=tuple(trials))
    loads = [t.context for t in past.trials if t.tries(held)]
    candidates = [candidate for load in loads if (candidate := past.at(load).of(held)) is not None]
    broken = bool(candidates) and all(one.verdict is Verdict.INFEASIBLE for one in candidates)
    return broken and past.evidence.broken is None
