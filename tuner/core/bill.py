"""The bill: what exploring cost, what the held setting has saved since, and when it pays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from tuner.core.baselines import FIRST, BaselineCourse, BaselinePart
from tuner.core.devices import MetricSample
from tuner.core.held_time import spoken_for
from tuner.core.knobs import SettingKey
from tuner.core.measurements import Estimate, Measurement, Origin
from tuner.core.plausibility import HeldRange, implausible
from tuner.core.quantities import CAPACITY, ENERGY, POWER, UNDECLARED, Quantities, called
from tuner.core.series import TimeSeries
from tuner.core.studies import Revision
from tuner.core.trials import Trial

__all__ = [
    "Bill",
    "FRESH",
    "JOULES_PER_KWH",
    "PeriodSaving",
    "draw_up",
    "window_energy",
]

JOULES_PER_KWH = 3.6e6
FRESH = timedelta(days=1)
"""So long after the last control window its baseline passes for today's: our choice."""


@dataclass(frozen=True, slots=True)
class PeriodSaving:
    """What holding has saved since a time, in joules, by the held windows that began since.

    `windows` of them count, and represent `seconds` of the period, as in `draw_up`. `saved_j` is None where
    none does: of that time no energy was measured, or nothing to compare it with.
    """

    period: str
    since: datetime
    windows: int = 0
    seconds: float = 0.0
    saved_j: float | None = None
    stderr_j: float | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """Energy in joules over the whole study; None where no meter saw it.

    Trials that ended without a window (a refused setting, a crash) cost energy that was not measured:
    they are counted in `trials` and not in `explored_j`.

    `explored_j` is all that was used in trial windows and between them, `overhead_j` how much of it
    the baseline would not have used for the same items (negative: exploring itself saved).
    `saving_w` is what the best setting saves while serving the baseline's rate, `break_even_s` how
    long it must run until the whole of `explored_j` is back. `saved_j` is what holding has saved by
    the windows that are kept, the oldest of which began at `saved_since`, and `saved_stderr_j` its
    standard error: of `controls` windows that measured the baseline again, the last of them at
    `measured_again_at`. `extrapolated_since` is since when some of it rests on a baseline that was not
    measured again; None where all of it lies near a control window.

    `granted` trials came with changes of the constraints, on top of those the study was given. `periods`
    are the requested parts of `saved_j`.

    `share` is the part of a shared device's joules that the operator ascribes to the study: `explored_j`,
    `overhead_j`, `saving_w` and `saved_j` are that part of what was measured.

    Control windows are not counted in what was explored: they use what the baseline uses, and the time
    they take saves nothing.

    `saved_cost` and `saved_co2e_g` are `saved_j` in money and in g of CO2e, each window at its own time, by
    the series that `priced_by` names; None where one of them is not known for all of that time.
    """

    explored_j: float | None = None
    overhead_j: float | None = None
    saving_w: float | None = None
    saved_j: float | None = None
    saved_stderr_j: float | None = None
    saved_since: datetime | None = None
    controls: int = 0
    measured_again_at: datetime | None = None
    extrapolated_since: datetime | None = None
    break_even_s: float | None = None
    trials: int = 0
    granted: int = 0
    seconds: float = 0.0
    origin: Origin | None = None
    periods: tuple[PeriodSaving, ...] = ()
    share: float = 1.0
    saved_cost: float | None = None
    saved_co2e_g: float | None = None
    priced_by: tuple[str, ...] = ()

    def ascribed(self, share: float) -> Bill:
        """Return the bill with this part of the joules that were measured."""

        def part(whole: float | None) -> float | None:
            return None if whole is None else whole * share

        return replace(
            self,
            explored_j=part(self.explored_j),
            overhead_j=part(self.overhead_j),
            saving_w=part(self.saving_w),
            saved_j=part(self.saved_j),
            saved_stderr_j=part(self.saved_stderr_j),
            periods=tuple(
                replace(p, saved_j=part(p.saved_j), stderr_j=part(p.stderr_j)) for p in self.periods
            ),
            share=share,
            saved_cost=part(self.saved_cost),
            saved_co2e_g=part(self.saved_co2e_g),
        )


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

    `prices` are what a kilowatt-hour costs and emits: `cost` and `co2e_g`, as far as that is given.
    `periods` are times by name, since each of which the saving is also given by itself.

    `held` is what the held windows showed of the energy of an item, by their start. `course` reports what
    the baseline showed when and at which load; a window at whose load it was not measured is left out of
    what was saved and of what exploring used more. Without it the baseline is the same at all times. A
    trial's energy is its mean power over window and overhead; what one of the given number of like
    `devices` tried alone is scaled to all, and is billed as one's: an equal part. Windows without a power
    reading make the whole sum unknown rather than too small; those whose numbers cannot be true are left
    out. A held window represents the time since the one before it, at most `GAP_S`, where the study was
    holding all that time; else for itself. Time is counted once where windows overlap, and never more of it
    than passed on the tuner's clock since the first hold. A window beyond what the trials have shown
    (`HeldRange`) saves nothing, nor does one at `rests`, the baseline's setting.
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
    saved, shown = _Saved(prices), HeldRange.of((w for _, w in measured), declared)
    parts = {name: (since, _Saved({})) for name, since in periods.items()}
    for window, speaks_s in spoken_for(held, revisions, [t for t in trials if t.control]):
        if _beyond(window, shown):
            continue
        at_load = course.around(energy, window.started_at, window.context)
        sums = [saved, *(own for since, own in parts.values() if window.started_at >= since)]
        for own in sums:
            own.add(window, speaks_s, at_load, rests=window.setting == rests)
    rests_on = saved.rests_on
    again = [t.started_at for t in course.again if t.control and t.number in rests_on]
    return Bill(
        explored_j=explored,
        overhead_j=overhead,
        saving_w=saving_w,
        saved_j=saved.j if held else None,
        saved_stderr_j=saved.stderr_j if held else None,
        saved_since=held[0].started_at if held else None,
        controls=len(again),
        measured_again_at=max(again, default=None),
        extrapolated_since=saved.extrapolated_since,
        break_even_s=explored / saving_w if saving_w is not None and saving_w > 0.0 else None,
        trials=len(tried),
        granted=_granted(revisions),
        seconds=seconds,
        origin=per_item.origin,
        periods=tuple(own.of_period(name, since) for name, (since, own) in parts.items()),
        saved_cost=saved.worth.get("cost") if held else None,
        saved_co2e_g=saved.worth.get("co2e_g") if held else None,
        priced_by=tuple(series.name for series in prices.values()),
    )


def _granted(revisions: Sequence[Revision]) -> int:
    """Return how many trials a study has been given since it was made."""
    if not revisions:
        return 0
    return revisions[-1].study.terms.trials - revisions[0].study.terms.trials


def _beyond(window: MetricSample, shown: HeldRange | None) -> bool:
    """Return whether a held window claims more than its study's trials have shown."""
    return shown is not None and bool(shown.beyond(window.completed, window.seconds, window.mean))


def _more_j(parts: Sequence[BaselinePart], shown: float) -> float:
    """Return what an item took more than at the baseline; 0 where that is not known."""
    return shown - math.fsum(p.share * p.estimate.mean for p in parts) if parts else 0.0


@dataclass(slots=True)
class _Saved:
    """What holding has saved, summed up window by window, in joules.

    Its error has three sources. Every measurement of the baseline is off by its own error in all the
    windows that rest on it; every held window by its own; and where the baseline went from one value to
    another between two measurements at an unknown time: a step at any moment of that time, all equally
    likely, puts the straight line off by the step over √12.
    """

    prices: Mapping[str, TimeSeries]
    j: float = 0.0
    windows: int = 0
    seconds: float = 0.0
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
        """The measurements of the baseline that count for it."""
        return frozenset(self._baseline_j)

    @property
    def stderr_j(self) -> float:
        """Its standard error, in joules."""
        steps = math.fsum(j * j for j in self._between_j.values()) / 12.0
        return math.sqrt(self._own + math.fsum(j * j for j in self._baseline_j.values()) + steps)

    def of_period(self, period: str, since: datetime) -> PeriodSaving:
        """Return the sum as the saving of a period."""
        if not self.windows:
            return PeriodSaving(period, since)
        return PeriodSaving(period, since, self.windows, self.seconds, self.j, self.stderr_j)

    def add(
        self,
        window: MetricSample,
        speaks_s: float,
        baseline: Sequence[BaselinePart],
        *,
        rests: bool,
    ) -> None:
        """Add a held window that represents `speaks_s` seconds, beside the baseline at its time.

        One of the baseline's own setting (`rests`) saves nothing, whatever its noise.
        """
        if not baseline:
            return
        self.windows += 1
        self.seconds += speaks_s
        if rests:
            return
        items = window.completed / window.seconds * speaks_s
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
    """Return the joules of a window and their origin; None where no meter saw them."""
    power = window.estimates.get(called(POWER, declared))
    if power is not None:
        return power.mean * window.seconds, power.origin
    per_item = window.estimates.get(called(ENERGY, declared))
    return None if per_item is None else (per_item.mean * window.load.completed, per_item.origin)


def _part(trial: Trial, devices: int) -> float:
    """Return which part of the joules that a trial tells were used in it."""
    return 1.0 / devices if trial.device else 1.0


def _energy_j(window: Measurement, power: str) -> float | None:
    estimate = window.estimates.get(power)
    return None if estimate is None else estimate.mean * (window.seconds + window.overhead_s)
