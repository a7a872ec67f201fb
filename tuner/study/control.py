"""Control windows: while a plan is held the baseline is measured again, rarely and by the clock.

They are trials of the holding phase, and count towards the reported saving. Neither limits nor the
held setting depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from tuner.core import (
    Z95,
    BaselineCourse,
    BaselineShift,
    Estimate,
    Limit,
    Past,
    Phase,
    Plan,
    Setting,
    Study,
    Terms,
    Trial,
    Verdict,
    Worth,
    windows,
    within_hours,
)
from tuner.study import assignments
from tuner.study.confirm import confirmation_load
from tuner.study.moves import Assign, in_words
from tuner.study.sequential_tests import Cusum, relative_sd


def interval_s(terms: Terms) -> float:
    """Return the seconds from one control window to the next; infinite if none are wanted.

    A held window is due `OBSERVE_S` after the end of the one before it.
    """
    cycle_s = assignments.OBSERVE_S + terms.window_s
    return cycle_s / terms.control_share if terms.control_share > 0.0 else math.inf


def last_control(study: Study, trials: Sequence[Trial], held_since: datetime) -> datetime | None:
    """Return the start of a hold's last control window, or of the hold; None if there is to be none.

    There is none if only the baseline is held, or if the baseline has broken a limit, before or in
    a control window: it would break it again and again.
    """
    plan, terms = study.plan, study.terms
    if terms.control_share <= 0.0 or plan is None or len(study.devices) > 1:
        return None
    past = Past(study=study, trials=tuple(trials))
    behind = [past.behind(plan, row) for row in plan.rows]
    if all(study.rests(row.setting) for row in plan.rows) or any(e.broken for e in behind):
        return None
    own = windows(trials, phase=Phase.HOLDING, since=study.phase_since)
    if any(_broken(past, t) for t in windows(own, least=Worth.SOLID)[-1:]):
        return None
    return own[-1].started_at if own else held_since


def control(study: Study, plan: Plan, held: Setting) -> Assign:
    """Return the step to a control window, at the load that the held setting is confirmed at."""
    row = plan.row_of(held)
    at = {} if row is None else confirmation_load(study, plan, plan.rows[row])
    load = f", at {in_words(at)}" if at else ""
    return Assign(study.baseline, f"control window: measuring the baseline again{load}", at)


@dataclass(frozen=True, slots=True)
class LastControl:
    """The start of a study's last control window, and the terms of the next; None: never."""

    terms: Terms
    at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Return whether the next one is due: long enough after the last, and within its hours.

        One is also due if the last is as far in the future: then the clock was set back by an unknown
        time.
        """
        return self._left_s(now) <= 0.0 and within_hours(self.terms.control_hours, now)

    def due_in_s(self, now: datetime) -> float:
        """Return the least time in s until one is due; outside its hours, to the next hour."""
        left_s, here = self._left_s(now), now.astimezone()
        return left_s if left_s > 0.0 else 3600.0 - (60.0 * here.minute + here.second)

    def _left_s(self, now: datetime) -> float:
        """Return the seconds left of the interval; infinite if there is to be none."""
        if self.at is None:
            return math.inf
        return interval_s(self.terms) - abs((now - self.at).total_seconds())


@dataclass(frozen=True, slots=True)
class _Residual:
    """Log ratio of a trial's window to the first baseline, and the standard deviations of both."""

    trial: int
    at: datetime
    shift: float
    sd: float
    reference_sd: float


def baseline_shifts(study: Study, trials: Sequence[Trial]) -> tuple[BaselineShift, ...]:
    """Return every lasting shift of the objective's metric at the baseline, oldest first.

    Each control window is compared with the first baseline at its own load, all loads in one CUSUM;
    after an alarm, with the new level. A shift is dated by its first window.
    """
    residuals = _residuals(study, trials)
    starts = _starts(residuals)
    return tuple(_shift(residuals[a:b]) for a, b in pairwise([*starts, len(residuals)]))


def _starts(residuals: Sequence[_Residual]) -> list[int]:
    """Return the indices at which lasting shifts begin."""
    starts: list[int] = []
    cusum, level, blind_sd = Cusum(), 0.0, 0.0
    for number, one in enumerate(residuals):
        blind = Z95 * (blind_sd if starts else one.reference_sd)
        if cusum.take(one.shift - level, one.sd, blind):
            starts.append(number + 1 - cusum.lasting)
            level, blind_sd = _level(residuals[starts[-1] : number + 1])
            cusum = Cusum()
    return starts


def _residuals(study: Study, trials: Sequence[Trial]) -> list[_Residual]:
    """Return the shift of each control window against the first baseline under its load."""
    course, metric = BaselineCourse.of(study, trials), study.objective.metric
    residuals = []
    for trial in windows(course.again, phase=Phase.HOLDING):
        estimate, first = trial.shown.get(metric), course.first(trial.ran_at).get(metric)
        if estimate is None or first is None or min(estimate.mean, first.mean) <= 0.0:
            continue
        shift, sd = (
            math.log(estimate.mean / first.mean),
            relative_sd(estimate.mean, estimate.stderr),
        )
        residuals.append(
            _Residual(trial.number, trial.started_at, shift, sd, first.stderr / first.mean)
        )
    return residuals


def _level(residuals: Sequence[_Residual]) -> tuple[float, float]:
    """Return the mean of some residuals, weighted by precision, and its standard error."""
    weights = [one.sd**-2 for one in residuals]
    total = math.fsum(weights)
    mean = math.fsum(w * one.shift for w, one in zip(weights, residuals, strict=True)) / total
    return mean, total**-0.5


def _shift(residuals: Sequence[_Residual]) -> BaselineShift:
    """Return the mean shift of the baseline over these windows."""
    level, sd = _level(residuals)
    ratio, doubt = math.exp(level), math.hypot(sd, residuals[-1].reference_sd)
    change = Estimate.of_mean(ratio - 1.0, ratio * doubt, len(residuals))
    return BaselineShift(residuals[0].at, change, len(residuals))


def _broken(past: Past, window: Trial) -> Limit | None:
    """Return the limit that a control window is proven to break, None if there is none."""
    limits = past.at(window.context).limits or past.evidence.limits or ()
    shown = window.shown
    return next((x for x in limits if x.verdict(shown.get(x.metric)) is Verdict.INFEASIBLE), None)


def news_of(study: Study, trials: Sequence[Trial], ended: Trial) -> Iterator[tuple[str, str]]:
    """Yield the new findings of a control window: kind and text of an event.

    `trials` are all of the study's, including that one as it ended.
    """
    if not ended.solid:
        return
    residuals = _residuals(study, trials)
    before = [one for one in residuals if one.trial != ended.number]
    starts = _starts(residuals)
    if len(starts) > len(_starts(before)):
        shift = _shift(residuals[starts[-1] :]).in_words(study.objective.metric)
        claim = (
            f"savings are now counted from the new baseline; see `jouletune study show {study.id}`"
        )
        yield "baseline drifted", f"{shift}; {claim}"
    limit = _broken(Past(study=study, trials=tuple(trials)), ended)
    if limit is not None:
        why = f"the baseline breaks {limit.in_short} in trial {ended.number}"
        yield "control windows ended", f"{why}; no more control windows while this plan is held"
