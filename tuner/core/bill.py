"""The bill of a study: the energy used by exploring, the energy saved by holding, the break-even time.

A held window represents the time that its agent reports with it, within limits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

from tuner.core.devices import MetricSample
from tuner.core.estimates import Estimate, Origin
from tuner.core.knobs import SettingKey
from tuner.core.measurements import Measurement
from tuner.core.quantities import CAPACITY, ENERGY, POWER, UNDECLARED, Quantities, called
from tuner.core.savings import FIRST, BaselineCourse, BaselinePart
from tuner.core.series import TimeSeries
from tuner.core.studies import Revision
from tuner.core.trials import Phase, Trial
from tuner.core.witnesses import HeldRange, implausible

JOULES_PER_KWH = 3.6e6
IN_ALL = "in all"
"""The period of all holding."""
FRESH = timedelta(days=1)
"""The time after the last control window for which its baseline counts as current: our choice."""
GAP_S = 300.0
"""The longest time in s that a held window represents if its agent does not report that time."""


@dataclass(frozen=True, slots=True)
class PeriodSaving:
    """The joules saved by holding since a time, by the held windows that began since then.

    `windows` is the number of windows that count; they represent `seconds` of the period, as in `draw_up`.
    `saved_j` is None if no window counts: the energy of that time, or of the baseline, was not measured.
    `baseline_j` is what the baseline would have used in that time; `cost` is in money, `co2e_g` in g.
    """

    period: str
    since: datetime
    windows: int = 0
    seconds: float = 0.0
    saved_j: float | None = None
    stderr_j: float | None = None
    baseline_j: float | None = None
    cost: float | None = None
    co2e_g: float | None = None

    def ascribed(self, share: float) -> PeriodSaving:
        """Return this share of the saving."""
        parts = ("saved_j", "stderr_j", "baseline_j", "cost", "co2e_g")
        values = {name: getattr(self, name) for name in parts}
        return replace(self, **{n: v * share for n, v in values.items() if v is not None})


@dataclass(frozen=True, slots=True)
class Bill:
    """Energy in joules over the whole study; None if it was not metered.

    Trials that ended without a window (a refused setting, a crash) used energy that was not measured:
    they are counted in `trials` but not in `explored_j`.

    `explored_j` is the energy used in trial windows and between them, `overhead_j` the part of it that
    the baseline would not have used for the same items (negative: exploring itself saved). `saving_w` is
    the power that the best setting saves at the baseline's rate of items, `break_even_s` the time that it
    must run to save `explored_j`.

    `whole` is the saving by holding, from the stored held windows, since the oldest of them; None without
    one. `periods` are requested parts of it. It rests on `controls` control windows, which measure the
    baseline again; the last was at `measured_again_at`. `extrapolated_since` is the time of the earliest
    baseline measurement that is applied to held windows long after it: more than `FRESH` after a control
    window, or at any time after the first baseline. It is None without such a window.

    `granted` is the number of trials added by changes of the constraints.

    `share` is the part of a shared device's joules that the operator ascribes to the study: `explored_j`,
    `overhead_j`, `saving_w` and the savings are that part of the measured values.

    Control windows do not count in `explored_j`: they use as much as the baseline does, and their time
    saves nothing.

    The cost and the CO2e of a saving count each window by the rate at its start, from the series named in
    `priced_by`; None if a rate is unknown for a part of that time. `currency` is that of the cost.
    """

    explored_j: float | None = None
    overhead_j: float | None = None
    saving_w: float | None = None
    controls: int = 0
    measured_again_at: datetime | None = None
    extrapolated_since: datetime | None = None
    break_even_s: float | None = None
    trials: int = 0
    granted: int = 0
    seconds: float = 0.0
    origin: Origin | None = None
    periods: tuple[PeriodSaving, ...] = ()
    whole: PeriodSaving | None = None
    share: float = 1.0
    priced_by: tuple[str, ...] = ()
    currency: str = ""

    def ascribed(self, share: float) -> Bill:
        """Return the bill with this share of all measured joules, and of the costs derived from them."""
        values = {n: getattr(self, n) for n in ("explored_j", "overhead_j", "saving_w")}
        parts = {name: value * share for name, value in values.items() if value is not None}
        periods = tuple(period.ascribed(share) for period in self.periods)
        whole = None if self.whole is None else self.whole.ascribed(share)
        return replace(self, **parts, periods=periods, whole=whole, share=share)


def draw_up(
    trials: Sequence[Trial],
    baseline: Mapping[str, Estimate],
    best: Mapping[str, Estimate],
    held: Sequence[MetricSample] = (),
    revisions: Sequence[Revision] = (),
    declared: Quantities = UNDECLARED,
    course: BaselineCourse | None = None,
    devices: int = 1,
    rests: SettingKey | None = None,
    prices: Mapping[str, TimeSeries] = MappingProxyType({}),
    periods: Mapping[str, datetime] = MappingProxyType({}),
) -> Bill:
    """Return the bill of a study from its trials, baseline, best setting, held windows and revisions.

    `held` are the held windows' estimates of the energy per item, in order of their start. `course` is the
    baseline by time and load; without it the baseline is the same at all times. `devices` is the number of
    the study's similar devices, `rests` the baseline's setting. `prices` are the rates per kilowatt-hour,
    in money (`cost`) and in g of CO2e (`co2e_g`), as far as given. `periods` are start times by name; the
    saving since each of them is also given separately.

    A trial's energy is its mean power times the seconds of its window and overhead. The estimates of a
    trial that one of several devices ran alone are scaled to all of them; the bill counts one device's
    equal part. A window without a power reading makes the whole sum unknown, because a partial sum would be
    too small. Windows with implausible figures are left out. A window at a load at which the baseline was
    not measured counts neither as overhead nor as saving.

    A held window represents `speaks_s`, at most the time since the end of the previous one; without
    `speaks_s`, the time since the start of the previous one, at most `GAP_S`. If the study was not holding
    all that time, it represents only its own length. Overlapping time counts once, and no more time counts
    than has passed on the tuner's clock since the first hold. A window beyond the range of the trials
    (`HeldRange`) saves nothing, and neither does one at `rests`.
    """
    tried = [t for t in trials if not t.control]
    measured = [
        (t, w) for t in tried if (w := t.measurement) is not None and not implausible(w, declared)
    ]
    windows = [w for _, w in measured]
    seconds = math.fsum(w.seconds + w.overhead_s for w in windows)
    energy, power, capacity = (called(name, declared) for name in (ENERGY, POWER, CAPACITY))
    energies = [
        None if (whole := _energy_j(w, power)) is None else whole * _part(t, devices)
        for t, w in measured
    ]
    counted = [e for e in energies if e is not None]
    if not windows or len(counted) < len(windows) or energy not in baseline:
        unknown = tuple(PeriodSaving(name, since) for name, since in periods.items())
        return Bill(
            trials=len(tried), granted=_granted(revisions), seconds=seconds, periods=unknown
        )
    per_item = baseline[energy]
    explored = math.fsum(counted)
    course = course or BaselineCourse(lambda _: baseline)
    overhead = math.fsum(
        _more_j(course.around(energy, w.started_at, t.ran_at), w.estimates[energy].mean)
        * w.load.completed
        * _part(t, devices)
        for t, w in measured
        if energy in w.estimates
    )
    gain = per_item.mean - best[energy].mean if energy in best else None
    rate = baseline[capacity].mean if capacity in baseline else None
    saving_w = gain * rate if gain is not None and rate is not None else None
    saved = _Saved(prices)
    parts = {name: (since, _Saved(prices)) for name, since in periods.items()}
    for window, speaks_s, at_load in billed_windows(trials, held, revisions, declared, course):
        sums = [saved, *(own for since, own in parts.values() if window.started_at >= since)]
        for own in sums:
            own.add(window, speaks_s, at_load, rests=window.setting == rests)
    rests_on = saved.rests_on
    again = [t.started_at for t in course.again if t.control and t.number in rests_on]
    return Bill(
        explored_j=explored,
        overhead_j=overhead,
        saving_w=saving_w,
        controls=len(again),
        measured_again_at=max(again, default=None),
        extrapolated_since=saved.extrapolated_since,
        break_even_s=explored / saving_w if saving_w is not None and saving_w > 0.0 else None,
        trials=len(tried),
        granted=_granted(revisions),
        seconds=seconds,
        origin=per_item.origin,
        periods=tuple(own.of_period(name, since) for name, (since, own) in parts.items()),
        whole=saved.of_period(IN_ALL, held[0].started_at) if held else None,
        priced_by=tuple(series.name for series in prices.values()),
    )


def billed_windows(
    trials: Sequence[Trial],
    held: Sequence[MetricSample],
    revisions: Sequence[Revision],
    declared: Quantities,
    course: BaselineCourse,
) -> Iterator[tuple[MetricSample, float, Sequence[BaselinePart]]]:
    """Yield each held window, the seconds it represents, and its baseline; none if it does not count."""
    tried = [w for t in trials if not t.control and (w := t.measurement) is not None]
    shown = HeldRange.of(tried, declared)
    for window, speaks_s in _spoken_for(held, revisions, [t for t in trials if t.control]):
        parts = course.around(called(ENERGY, declared), window.started_at, window.context)
        yield window, speaks_s, () if _beyond(window, shown) else parts


def summed(parts: Sequence[PeriodSaving]) -> PeriodSaving:
    """Return the sum of the savings that are known; a value that one of them lacks is None."""
    measured = [part for part in parts if part.saved_j is not None]

    def of(name: str) -> float | None:
        values = [getattr(part, name) for part in measured]
        return None if not values or None in values else math.fsum(values)

    return PeriodSaving(
        parts[0].period,
        min(part.since for part in parts),
        sum(part.windows for part in measured),
        math.fsum(part.seconds for part in measured),
        of("saved_j"),
        math.hypot(*(part.stderr_j or 0.0 for part in measured)),
        *(of(name) for name in ("baseline_j", "cost", "co2e_g")),
    )


def _granted(revisions: Sequence[Revision]) -> int:
    """Return the number of trials that revisions have added to a study since its creation."""
    if not revisions:
        return 0
    return revisions[-1].study.terms.trials - revisions[0].study.terms.trials


def _beyond(window: MetricSample, shown: HeldRange | None) -> bool:
    """Return whether a held window's rate or power is outside the range of its study's trials."""
    return shown is not None and bool(shown.beyond(window.completed, window.seconds, window.mean))


def _more_j(parts: Sequence[BaselinePart], shown: float) -> float:
    """Return the joules per item above the baseline's; 0 if the baseline is unknown."""
    return shown - math.fsum(p.share * p.estimate.mean for p in parts) if parts else 0.0


@dataclass(slots=True)
class _Saved:
    """The joules saved by holding, summed window by window.

    The error has three sources. The error of each measurement of the baseline is common to all windows that
    rest on it. Each held window has its own error. The baseline may step from one value to the next at an
    unknown time between two measurements: if all times are equally likely, the error of the linear
    interpolation is the step over √12.
    """

    prices: Mapping[str, TimeSeries]
    j: float = 0.0
    windows: int = 0
    seconds: float = 0.0
    baseline_j: float = 0.0
    extrapolated_since: datetime | None = None
    worth: dict[str, float | None] = field(init=False)
    _own: float = 0.0
    _baseline_j: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    _between_j: defaultdict[tuple[int, int], float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def __post_init__(self) -> None:
        self.worth = dict.fromkeys(self.prices, 0.0)

    @property
    def rests_on(self) -> frozenset[int]:
        """The numbers of the baseline measurements that the sum rests on."""
        return frozenset(self._baseline_j)

    @property
    def stderr_j(self) -> float:
        """The standard error of the sum, in joules."""
        steps = math.fsum(j * j for j in self._between_j.values()) / 12.0
        return math.sqrt(self._own + math.fsum(j * j for j in self._baseline_j.values()) + steps)

    def of_period(self, period: str, since: datetime) -> PeriodSaving:
        """Return the sum as the saving of a period."""
        if not self.windows:
            return PeriodSaving(period, since)
        joules = self.j, self.stderr_j, self.baseline_j
        worth = self.worth.get("cost"), self.worth.get("co2e_g")
        return PeriodSaving(period, since, self.windows, self.seconds, *joules, *worth)

    def add(
        self,
        window: MetricSample,
        speaks_s: float,
        baseline: Sequence[BaselinePart],
        *,
        rests: bool,
    ) -> None:
        """Add a held window that represents `speaks_s` seconds, compared with the baseline at its time.

        A window at the baseline's setting (`rests`) saves exactly 0 J, so that its noise is not counted.
        """
        if not baseline:
            return
        self.windows += 1
        self.seconds += speaks_s
        items = window.completed / window.seconds * speaks_s
        self.baseline_j += items * math.fsum(p.share * p.estimate.mean for p in baseline)
        if rests:
            return
        more_j = items * _more_j(baseline, window.mean)
        self.j -= more_j
        for name, series in self.prices.items():
            worth, rate = self.worth[name], series.at(window.started_at)
            if worth is None or rate is None:
                self.worth[name] = None
            else:
                self.worth[name] = worth - more_j / JOULES_PER_KWH * rate
        self._own += (items * window.stderr) ** 2
        for part in baseline:
            self._baseline_j[part.number] += items * part.share * part.estimate.stderr
        if len(baseline) == 2:
            before, after = baseline
            step = after.estimate.mean - before.estimate.mean
            self._between_j[before.number, after.number] += items * step
            return
        (only,) = baseline
        fresh = timedelta() if only.number == FIRST else FRESH
        if only.at is not None and window.started_at - only.at > fresh:
            self.extrapolated_since = min(self.extrapolated_since or only.at, only.at)


def window_energy(
    window: Measurement, declared: Quantities = UNDECLARED
) -> tuple[float, Origin] | None:
    """Return the joules of a window and their origin; None if they were not metered."""
    power = window.estimates.get(called(POWER, declared))
    if power is not None:
        return power.mean * window.seconds, power.origin
    per_item = window.estimates.get(called(ENERGY, declared))
    return None if per_item is None else (per_item.mean * window.load.completed, per_item.origin)


def _part(trial: Trial, devices: int) -> float:
    """Return the share of a trial's reported joules that it used: one device's if one ran it alone."""
    return 1.0 / devices if trial.device else 1.0


def _energy_j(window: Measurement, power: str) -> float | None:
    """Return the joules of a window and its overhead by its mean power, None without a power reading."""
    estimate = window.estimates.get(power)
    return None if estimate is None else estimate.mean * (window.seconds + window.overhead_s)


def held_since(revisions: Sequence[Revision]) -> datetime | None:
    """Return the time since which a study has been holding; None if it does not hold."""
    return _runs(revisions)[-1] if revisions else None


def _spoken_for(
    held: Sequence[MetricSample], revisions: Sequence[Revision], controls: Sequence[Trial]
) -> Iterator[tuple[MetricSample, float]]:
    """Yield every held window, oldest first, with the seconds that it represents."""
    turns, runs = [r.at for r in revisions], _runs(revisions)
    away = _Away(controls)
    since = min((run for run in runs if run is not None), default=None)
    budget = _Budget(since, min(held[0].seconds, GAP_S) if held else 0.0)
    before, before_run, covered = None, None, datetime.min.replace(tzinfo=timezone.utc)
    for window in sorted(held, key=lambda w: w.started_at):
        turn = bisect_right(turns, window.started_at)
        run = runs[turn - 1] if turn else None
        end = window.started_at + timedelta(seconds=window.seconds)
        overlaps, reported_s = window.started_at < covered, window.speaks_s
        speaks_s = max(0.0, (end - covered).total_seconds()) if overlaps else window.seconds
        covered = max(covered, end)
        if before is not None and run is not None and run == before_run and not overlaps:
            since_s = (window.started_at - before.started_at).total_seconds()
            since_s -= away.seconds(before.started_at, window.started_at)
            to_end_s = since_s + window.seconds - before.seconds
            speaks_s = max(speaks_s, min(since_s, GAP_S) if reported_s is None else to_end_s)
        speaks_s = speaks_s if reported_s is None else min(speaks_s, reported_s)
        yield window, budget.spend(speaks_s, window.at)
        before, before_run = window, run


class _Budget:
    """Limits the represented time to the time on the tuner's clock since the first hold.

    The first window's length is allowed in addition, because a simulated device may have another clock.
    """

    def __init__(self, since: datetime | None, first_s: float) -> None:
        self._since, self._spent_s = since, -first_s

    def spend(self, seconds: float, at: datetime | None) -> float:
        """Return the part of a window's time that had passed when the tuner received it, and count it."""
        if self._since is not None and at is not None:
            passed_s = (at - self._since).total_seconds()
            seconds = min(seconds, max(0.0, passed_s - self._spent_s))
        self._spent_s += seconds
        return seconds


class _Away:
    """The times when a holding study was not at its held setting: its control windows."""

    def __init__(self, controls: Sequence[Trial]) -> None:
        self._spans = sorted((t.started_at, t.ended_at) for t in controls if t.ended_at is not None)

    def seconds(self, since: datetime, until: datetime) -> float:
        """Return the seconds of the control windows that began between two times.

        A held window never overlaps a control window, so no control window is cut.
        """
        first = bisect_right(self._spans, (since, since))
        last = bisect_right(self._spans, (until, until))
        return math.fsum((end - start).total_seconds() for start, end in self._spans[first:last])


def _runs(revisions: Sequence[Revision]) -> list[datetime | None]:
    """Return, for each revision, the time since which the study was holding; None if it was not."""
    runs: list[datetime | None] = []
    since = None
    for revision in revisions:
        since = (since or revision.at) if revision.study.phase is Phase.HOLDING else None
        runs.append(since)
    return runs
