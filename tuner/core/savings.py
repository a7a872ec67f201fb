"""The gain of one setting over another, its cost in capacity and latency, and the baseline over time.

Between two windows the baseline is interpolated linearly; after the last one it is assumed constant. Both
are our choice: of a step between two windows, half is credited too early and half too late.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tuner.core.estimates import Estimate
from tuner.core.evidence import Worth, is_at, windows
from tuner.core.plans import Context
from tuner.core.policies import Past
from tuner.core.quantities import (
    CAPACITY,
    LARGEST,
    UNDECLARED,
    Kind,
    OverDevices,
    Quantities,
    called,
    quantity_of,
)
from tuner.core.studies import Study
from tuner.core.trials import Trial
from tuner.moments import when

_CAPACITY_LOSS = 0.05
"""A larger loss of capacity, or growth of a latency without a limit, is reported in the line of the saving:
our choice."""
_Estimates = Mapping[str, Estimate]
FIRST = 0
"""The number of the first baseline; later measurements have the numbers of their trials."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The improvement of one value over another: above 0 is better, below 0 worse.

    `amount` is a share of the baseline if `relative` is true, else a difference in the metric's unit.
    """

    amount: Estimate
    relative: bool

    @property
    def share(self) -> Estimate | None:
        """The improvement as a share of the baseline; None if it is a difference."""
        return self.amount if self.relative else None

    def text(self, unit: str = "") -> str:
        """Return the size with its standard error, without a sign: `12.3 ± 0.4 %`, `0.5 ± 0.1 J`."""
        mean, doubt = abs(self.amount.mean), self.amount.stderr
        if self.relative:
            return f"{100 * mean:.1f} ± {100 * doubt:.1f} %"
        spread = f" ± {doubt:.2g}" if doubt > 0.0 else ""
        return f"{mean:.4g}{spread}{'' if unit in ('', '1') else f' {unit}'}"


def difference(baseline: Estimate, other: Estimate, sign: float = 1.0) -> Estimate:
    """Return by how much `other` is better than `baseline`, in their unit; `sign` is the objective's."""
    doubt = math.hypot(other.stderr, baseline.stderr)
    return _better(sign * (baseline.mean - other.mean), doubt, baseline, other)


def improvement(baseline: Estimate, other: Estimate, sign: float = 1.0) -> Improvement:
    """Return by how much `other` is better than `baseline`; `sign` is the objective's.

    It is a share of the baseline if the baseline is above 0 and the other value is not below 0. Else it is
    the difference: a share of a baseline of -1, or of 0, has no meaning. It is the difference, too, if the
    share is absurdly large.
    """
    base = baseline.mean
    if base > 0.0 and other.mean >= 0.0:
        share = sign * (base - other.mean) / base
        doubt = math.hypot(other.stderr / base, other.mean / base * (baseline.stderr / base))
        if max(abs(share), doubt) < LARGEST:
            return Improvement(_better(share, doubt, baseline, other), True)
    return Improvement(difference(baseline, other, sign), False)


def _better(mean: float, doubt: float, baseline: Estimate, other: Estimate) -> Estimate:
    """Return an improvement and its standard error as an estimate, with the smaller `n` of both."""
    return Estimate.of_mean(
        mean, doubt, min(baseline.n, other.n), origin=other.origin, scope=other.scope
    )


def capacity_lost(
    baseline: _Estimates,
    best: _Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on a loss of capacity of over 5 %; empty if the loss is smaller or unknown.

    `requested` are the metrics of the objective and the constraints. If the capacity is not one of them,
    the clause names the constraint that would prevent the loss.
    """
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None or share >= -_CAPACITY_LOSS:
        return ""
    text = f"{capacity} is {-100 * share:.1f} % lower"
    if capacity in requested:
        return f"{text}, as its constraint allows"
    constraint = f"{capacity} >= {1.0 - _CAPACITY_LOSS:g}x baseline"
    return f'{text}: add the constraint "{constraint}" to keep it'


def slower_by(
    baseline: _Estimates,
    best: _Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on the latency that grew most, with its growth.

    Empty if the objective or a constraint is on a latency (`requested`), or if no latency grew by over 5 %.
    """

    def is_latency(metric: str) -> bool:
        quantity = quantity_of(metric, declared)
        return quantity.kind is Kind.TIME and quantity.over_devices is not OverDevices.SUM

    if any(is_latency(metric) for metric in requested):
        return ""
    grown = {m: _grown(baseline, best, m) or 0.0 for m in sorted(best) if is_latency(m)}
    metric = max(grown, key=lambda m: grown[m], default="")
    if not metric or grown[metric] <= _CAPACITY_LOSS:
        return ""
    constraint = f"{metric} <= {1.0 + _CAPACITY_LOSS:g}x baseline"
    return f'{metric} is {100 * grown[metric]:.1f} % higher: add the constraint "{constraint}" to keep it'


def capacity_beside(
    baseline: _Estimates,
    best: _Estimates,
    requested: Collection[str],
    declared: Quantities = UNDECLARED,
) -> str:
    """Return a clause on the change of the capacity, also if it is small, zero or unknown."""
    capacity = called(CAPACITY, declared)
    share = _grown(baseline, best, capacity)
    if share is None:
        return f"{capacity} was not measured"
    if lost := capacity_lost(baseline, best, requested, declared):
        return lost
    grown = f"{100 * share:+.1f}"
    if float(grown) == 0.0:
        return f"{capacity} is unchanged"
    return f"{capacity} is {grown[1:]} % {'higher' if grown[0] == '+' else 'lower'}"


def _grown(baseline: _Estimates, best: _Estimates, capacity: str) -> float | None:
    """Return the growth of a metric as a share of the baseline; None if it is unknown."""
    if capacity not in baseline or capacity not in best:
        return None
    share = improvement(baseline[capacity], best[capacity], -1.0).share
    return None if share is None else share.mean


@dataclass(frozen=True, slots=True)
class BaselinePart:
    """One measurement of the baseline as it applies to a moment: its estimate, and its weight `share`.

    `number` is its trial's, or `FIRST`. `at` is the time of the measurement, None if unknown.
    """

    number: int
    at: datetime | None
    estimate: Estimate
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class BaselineShift:
    """A lasting shift of the baseline from its first measurement, proven by later windows of it.

    `change` is relative to the first measurement: −0.1 ± 0.01 if the metric has fallen by a tenth.
    `windows` is the number of windows, from `since` on, that prove it.
    """

    since: datetime
    change: Estimate
    windows: int

    def now(self, first: Estimate) -> Estimate:
        """Return the baseline's present estimate of the metric from its first one."""
        ratio = 1.0 + self.change.mean
        doubt = math.hypot(ratio * first.stderr, first.mean * self.change.stderr)
        return Estimate.of_mean(
            ratio * first.mean, doubt, first.n, origin=first.origin, scope=first.scope
        )

    def in_words(self, metric: str) -> str:
        """Return the shift as a sentence."""
        percent, doubt = 100.0 * self.change.mean, 100.0 * self.change.stderr
        way = "higher" if percent >= 0.0 else "lower"
        return (
            f"the baseline has drifted: its {metric} is {abs(percent):.1f} ± {doubt:.1f} % {way} than "
            f"the study's first baseline ({self.windows} windows since {when(self.since)})"
        )


class BaselineCourse:
    """The baseline's metrics at a time and a load, from the control windows near that time.

    `first` returns the baseline's estimates at a load from before the first control window; `first_at` is
    the time of the last of those measurements. `again` are the baseline's complete windows from the first
    control window on. `past` is the past that `first` reads, if any.
    """

    def __init__(
        self,
        first: Callable[[Context], Mapping[str, Estimate]],
        first_at: datetime | None = None,
        again: Sequence[Trial] = (),
        past: Past | None = None,
    ) -> None:
        self.first, self.past = first, past
        self._first_at = first_at
        self.again = tuple(sorted(again, key=_began))
        self._starts = [_began(trial) for trial in self.again]

    @classmethod
    def of(cls, study: Study, trials: Iterable[Trial]) -> BaselineCourse:
        """Return the course of a study's baseline from its trials since `since_trial`."""
        solid = windows(trials, study.baseline, since=study.since_trial, least=Worth.SOLID)
        solid.sort(key=lambda t: t.number)
        since = next((k for k, t in enumerate(solid) if t.control), len(solid))
        first = solid[:since]
        # As measured, at the loads that arrived: a bill compares windows at like loads.
        raw = replace(study, terms=replace(study.terms, plan_by=""))
        past = Past(study=raw, trials=tuple(first))
        last = max(map(_began, first), default=None)
        return cls(past.baseline_at, last, solid[since:], past)

    def around(self, metric: str, at: datetime, load: Context) -> tuple[BaselinePart, ...]:
        """Return the baseline's measurements of a metric just before and after a time, at a like load.

        Their shares add up to 1. Empty if the baseline was never measured at such a load.
        """
        here = bisect_right(self._starts, at)
        after = self._nearest(metric, load, range(here, len(self.again)))
        before = self._nearest(metric, load, reversed(range(here)))
        if before is None and (first := self.first(load).get(metric)) is not None:
            before = BaselinePart(FIRST, self._first_at, first)
        if before is None or after is None:
            return tuple(part for part in (before, after) if part is not None)
        if before.at is None or after.at is None or at <= before.at:
            return (before,)
        share = (at - before.at) / (after.at - before.at)
        return replace(before, share=1.0 - share), replace(after, share=share)

    def _nearest(self, metric: str, load: Context, windows: Iterable[int]) -> BaselinePart | None:
        """Return the first of these windows that has the metric at a comparable load, None if none has."""
        for trial in map(self.again.__getitem__, windows):
            if metric in trial.shown and is_at(trial.ran_at, load):
                return BaselinePart(trial.number, _began(trial), trial.shown[metric])
        return None


def _began(trial: Trial) -> datetime:
    """Return the start of a trial's window, of the trial itself if it has no window."""
    return trial.started_at if trial.measurement is None else trial.measurement.started_at
