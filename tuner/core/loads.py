"""The load that selects a row of a plan: its bands, and the time spent in each."""

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
    "is_near",
    "load_band",
    "load_turns",
    "load_trend",
]

LOAD_STEP = math.sqrt(1.25)
"""The ratio between the edges of a band of loads. Loads of two adjacent bands differ by at most a fifth, as
do the loads of two windows that may be compared (`LOAD_BAND`)."""

LOAD_REACH = math.sqrt(LOAD_STEP)
"""A setting that is confirmed at a load may be held up to this many times that load: half a band."""

LOAD_NEAR = LOAD_STEP**4
"""The greatest ratio of two loads (1.56) over which a metric is modelled as a power of the load: our
choice."""

BURST = "_burst_"
"""Part of the name of a burst in a window's load: the excess of a signal over a multiple of its mean."""

BURST_RATES = (1.0, 1.5, 2.0, 4.0)
"""Multiples of a bound above which bursts are measured, from a long small excess to a spike: our choice."""

BURST_SHARE = 0.02
"""A window is evidence for a burst if at least this share of its requests arrived in the burst. At most
half of these requests can be over the limit if the window kept a limit on its p99."""

RISE_WINDOWS = 6
"""A load that rose within this number of the latest windows may rise again: our choice."""

LOOK_S = 60.0
"""The assumed length, in seconds, of a burst that the present load may belong to: our choice."""

LEAST_LOAD = 1e-3
"""Loads below this are one band."""


def load_band(load: float) -> int:
    """Return the number of a load's band: band 0 begins at a load of 1; bands below it are negative."""
    return math.floor(math.log(max(load, LEAST_LOAD)) / math.log(LOAD_STEP) + 1e-9)


def confirms_at(measured: float, load: float) -> bool:
    """Return whether a window at one load may confirm a row of a plan at another.

    A window at a lower load confirms it within the reach of a row (`LOAD_REACH`): farther below it shows
    too little. A window at a higher load shows more, and confirms it up to the ratio at which loads are
    compared.
    """
    return load / LOAD_REACH <= measured <= load * LOAD_STEP**2


def is_near(load: float, other: float) -> bool:
    """Return whether two loads are near enough for the model of a metric as a power of the load."""
    return other <= load * LOAD_NEAR <= other * LOAD_NEAR**2


class Bursts:
    """The excess of a load over each multiple of a bound in `BURST_RATES`: token buckets.

    `levels` are in the signal's unit × s; for a rate these are requests. A level grows by the excess over
    its multiple of the bound, and falls, down to 0, while the load is below it. So a long small excess
    counts as much as a short large one (Cruz, A Calculus for Network Delay, 1991).
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self.levels = (0.0,) * len(BURST_RATES)

    def add(self, mean: float, seconds: float) -> None:
        """Update the levels by the mean load of the next seconds."""
        self.levels = tuple(
            max(0.0, level + (mean - rate * self._bound) * seconds)
            for level, rate in zip(self.levels, BURST_RATES, strict=True)
        )

    def cap(self, most: Sequence[float]) -> None:
        """Lower each level to its maximum in `most`."""
        self.levels = tuple(map(min, self.levels, most))


def burst_names(signal: str) -> tuple[str, ...]:
    """Return the names of a signal's bursts in a window's load, one for each of `BURST_RATES`."""
    return tuple(f"{signal}{BURST}{rate:g}x" for rate in BURST_RATES)


def bursts_of(
    spans: Sequence[tuple[float, float]], bound: float, *, requests: bool = False
) -> tuple[float, ...]:
    """Return the levels of `Bursts` at or above which `BURST_SHARE` of a load arrived.

    `spans` are mean loads with their seconds, in order. For rates of `requests` the share is twice the
    share of requests above the upper bound of a p99, which is below 1 %, and 0 for 299 requests.
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

    `windows` are the loads of past windows, in order, with their seconds. The likeliest load is the present
    value, `now`. It is the last window's load if `now` is 0, or if that window is `recent` and one of its
    bursts explains the present value. If the load rose within the latest windows, its highest value may
    come again.
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
    """Return how often a load turned, from rising to falling or the reverse, within the latest windows."""
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
    """Return the loads of the latest windows, without those cut short: their loads are mostly noise."""
    latest = windows[-RISE_WINDOWS:]
    longest_s = max((seconds for _, seconds in latest), default=0.0)
    return [at for at, seconds in latest if seconds >= longest_s / 2.0]


def _exceeded(weighted: Sequence[tuple[float, float]], least: float) -> float:
    """Return the highest value that, with all higher ones, has at least the weight `least`; else 0."""
    total = 0.0
    for value, weight in sorted(weighted, reverse=True):
        total += weight
        if total >= least:
            return value
    return 0.0


def band_edges(band: int) -> tuple[float, float]:
    """Return the lower and the upper edge of a band, in the load's unit."""
    return LOAD_STEP**band, LOAD_STEP ** (band + 1)


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The seconds that a load spent in each band, as far as windows and holds show."""

    seconds: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float]]) -> LoadHistory:
        """Return the history of `spans`: pairs of a load and the seconds that it lasted."""
        seconds: Counter[int] = Counter()
        for load, lasted_s in spans:
            if math.isfinite(load) and lasted_s > 0.0:
                seconds[load_band(load)] += lasted_s  # type: ignore[assignment]
        return cls(dict(seconds))


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """The change of a metric with the load: an exponent, its standard error, and the noise.

    `noise` is the windows' scatter about the trend as a multiple of their standard errors. The standard
    error of a window includes the changes of the load within it, most of which the trend explains.
    """

    exponent: float
    stderr: float
    noise: float = 1.0


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
