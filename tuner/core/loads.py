"""The load that a plan goes by: its bands, and for how long each was seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tuner.core.knobs import SettingKey
from tuner.core.measurements import PRIOR_WINDOWS, Estimate
from tuner.core.plans import Context
from tuner.core.tails import above_bound

__all__ = [
    "BURST",
    "RISE_WINDOWS",
    "LOAD_NEAR",
    "LOAD_REACH",
    "LOAD_STEP",
    "Bursts",
    "LoadHistory",
    "LoadTrend",
    "band_edges",
    "burst_names",
    "bursts_of",
    "loads_ahead",
    "confirms_at",
    "load_band",
    "load_turns",
    "load_trend",
]

LOAD_STEP = math.sqrt(1.25)
"""From one band of a load to the next: loads of two adjoining bands differ by at most a fifth, as those of
windows that are compared do (`LOAD_BAND`)."""

LOAD_REACH = math.sqrt(LOAD_STEP)
"""A setting that is confirmed at a load may be held at loads up to this many times as high: half a band."""

LOAD_NEAR = LOAD_STEP**4
"""Between loads with a ratio up to this (1.56) a metric is taken to be a power of the load.

Ours.
"""

BURST = "_burst_"
"""In the name of a window's load: how far a signal exceeded a multiple of its mean."""

BURST_RATES = (1.0, 1.5, 2.0, 4.0)
"""Multiples of a bound that a burst is measured above: a little more for long, twice as much, a spike.

Ours.
"""

BURST_SHARE = 0.02
"""A window is evidence for a burst that at least this share of its requests arrived in: at most half of
them can be over a limit whose p99 the window kept."""

RISE_WINDOWS = 6
"""A load that rose within this number of windows may do so again: our choice."""

LOOK_S = 60.0
"""The time that the present value of a load is taken to last, if it is a burst. Ours."""

LEAST_LOAD = 1e-3
"""Loads below this are one band."""


def load_band(load: float) -> int:
    """Return the band of a load; bands are numbered from 0 for a load of 1."""
    return math.floor(math.log(max(load, LEAST_LOAD)) / math.log(LOAD_STEP) + 1e-9)


def confirms_at(measured: float, load: float) -> bool:
    """Return whether a window at one load may confirm a row of a plan at another.

    One at a lower load, by more than a row reaches, shows too little of it; one at a higher load shows
    more, as far as loads are compared.
    """
    return load / LOAD_REACH <= measured <= load * LOAD_STEP**2


class Bursts:
    """How much more of a load arrived than a bound, at each of `BURST_RATES`: token buckets.

    `levels` are in the signal's unit × s: of a rate, requests. A level grows with the excess over its
    multiple of the bound, and falls to 0 while there is none, so that a long small excess counts as a
    short large one (Cruz, A Calculus for Network Delay, 1991).
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self.levels = (0.0,) * len(BURST_RATES)

    def add(self, mean: float, seconds: float) -> None:
        """Add the mean of the load over the next seconds."""
        self.levels = tuple(
            max(0.0, level + (mean - rate * self._bound) * seconds)
            for level, rate in zip(self.levels, BURST_RATES, strict=True)
        )

    def cap(self, most: Sequence[float]) -> None:
        """Lower the levels to these at most."""
        self.levels = tuple(map(min, self.levels, most))


def burst_names(signal: str) -> tuple[str, ...]:
    """Return the names of a signal's bursts in a window's load, one for each of `BURST_RATES`."""
    return tuple(f"{signal}{BURST}{rate:g}x" for rate in BURST_RATES)


def bursts_of(
    spans: Sequence[tuple[float, float]], bound: float, *, requests: bool = False
) -> tuple[float, ...]:
    """Return the levels of `Bursts` that `BURST_SHARE` of a load arrived at or above.

    `spans` are means with their seconds, in order. Where these are rates of `requests`, the bound of
    a p99 leaves out fewer of them than 1 %, and none of 299: the share is twice that.
    """
    bursts, reached = Bursts(bound), list[tuple[float, tuple[float, ...]]]()
    for mean, seconds in spans:
        bursts.add(mean, seconds)
        reached.append((mean * seconds, bursts.levels))
    total = math.fsum(weight for weight, _ in reached)
    above = above_bound(int(total), 0.99) if requests else None
    least = BURST_SHARE * total if above is None else 2.0 * above
    return tuple(
        _exceeded([(levels[n], weight) for weight, levels in reached], least)
        for n in range(len(BURST_RATES))
    )


def loads_ahead(
    now: float, signal: str, windows: Sequence[tuple[Context, float]], *, recent: bool = True
) -> tuple[float, ...]:
    """Return the loads that a window may meet if it begins now: the highest first, the likeliest last.

    `windows` are the loads of windows, in order, with their seconds. The likeliest is that of the
    last one if that is `recent` and a burst as long as one in it explains the present value, and else
    the present value. If a load rose within the latest windows its highest value may come again.
    """
    latest = _whole(windows)
    if not latest:
        return (now,) if now > 0.0 else ()
    last = latest[-1][signal]
    burst = latest[-1].get(burst_names(signal)[0], 0.0)
    explained = recent and abs(now - last) * LOOK_S <= burst
    likely = last if now <= 0.0 or explained else now
    low, high = math.inf, 0.0
    for load in (at[signal] for at in latest):
        high = max(high, load) if load > low * LOAD_STEP**2 else high
        low = min(low, load)
    return (high, likely) if high > likely * LOAD_STEP**2 else (likely,)


def load_turns(signal: str, windows: Sequence[tuple[Context, float]]) -> int:
    """Return how often a load turned within the latest windows: from rising to falling, or the reverse."""
    turns, direction = 0, 0
    loads = [at[signal] for at in _whole(windows)]
    last = loads[0] if loads else 0.0
    for load in loads:
        step = (load > last * LOAD_STEP**2) - (load * LOAD_STEP**2 < last)
        turns += step * direction < 0
        direction = step or direction
        last = load if step or (load - last) * direction > 0.0 else last
    return turns


def _whole(windows: Sequence[tuple[Context, float]]) -> list[Context]:
    """Return the loads of the latest windows without those cut short: theirs are mostly chance."""
    latest = windows[-RISE_WINDOWS:]
    longest_s = max((seconds for _, seconds in latest), default=0.0)
    return [at for at, seconds in latest if seconds >= longest_s / 2.0]


def _exceeded(weighted: Sequence[tuple[float, float]], least: float) -> float:
    """Return the highest value that, with all above it, has at least this weight."""
    total = 0.0
    for value, weight in sorted(weighted, reverse=True):
        total += weight
        if total >= least:
            return value
    return 0.0


def band_edges(band: int) -> tuple[float, float]:
    """Return where a band begins and ends, in the load's unit."""
    return LOAD_STEP**band, LOAD_STEP ** (band + 1)


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """For how many seconds a load was in each band, as far as windows and holds show."""

    seconds: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float]]) -> LoadHistory:
        """Return the history of pairs of a load and the seconds that it lasted."""
        seconds: Counter[int] = Counter()
        for load, lasted_s in spans:
            if math.isfinite(load) and lasted_s > 0.0:
                seconds[load_band(load)] += lasted_s  # type: ignore[assignment]
        return cls(dict(seconds))


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """How a metric changes with the load: its exponent, the standard error of that, and the noise.

    `noise` is the factor on the windows' standard errors that their scatter about the trend shows. A
    window counts the changes of its own load as an error; the trend explains most of them.
    """

    exponent: float
    stderr: float
    noise: float = 1.0


def load_trend(windows: Iterable[tuple[SettingKey, float, Estimate]]) -> LoadTrend:
    """Return the trend of a metric, with an exponent common to all settings.

    Without data the exponent is 0 ± 1: with idle power an item's energy falls at most as fast as the
    load rises. The noise is that of the windows' errors, worth three windows, until more show it.
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
