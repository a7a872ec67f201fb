"""Interference: instances that run side by side are slower than each is alone.

Packrat (arXiv 2311.18174) plans with solo profiles. It explains the difference by clocks that fall
under vector load (about 15 %) and by memory bandwidth, and has no term for it. The term here is ours:
if all other threads of the machine are busy, an instance takes `share` longer, and proportionally less if
only some of them are. `share` is one number, learned from few windows and shrunk towards zero. On the
eight plans that the authors published for ResNet-50 (16 threads) it is 0.31. It predicts plans left out of
the fit with an error of 1.8 % in the median and 5.2 % at most.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from policies.packrat.profile import Profile

PRIOR_SD = 0.15
"""The prior standard deviation of `share`: the slowdown that the paper reports."""
MODEL_SD = 0.05
"""The standard deviation of a plan's slowdown from the model, without measurement errors: our guess."""


@dataclass(frozen=True, slots=True)
class PlanWindow:
    """A measured plan of equal instances; `latency_s` is the slowest instance's time for its batch."""

    instances: int
    threads: int
    batch: int
    latency_s: float
    stderr_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Interference:
    """The model by which a latency is multiplied by 1 + share · (other busy threads) / `cores`.

    `windows` is the number of windows in the fit. `errors` are |predicted − measured| / measured of each
    plan, predicted by a fit without that plan; empty for fewer than two plans. `stderr` is the standard
    error of the share; it is `PRIOR_SD` without windows.
    """

    share: float
    cores: int
    windows: int = 0
    errors: tuple[float, ...] = ()
    stderr: float = 0.0

    def slowdown(self, own: int, busy: int) -> float:
        """Return the factor on the latency of an instance with `own` of the `busy` threads."""
        return 1.0 + self.share * max(0, busy - own) / self.cores

    def doubt(self, own: int, busy: int) -> float:
        """Return the standard error of the slowdown, 0 for an instance that computes alone."""
        others = max(0, busy - own) / self.cores
        return math.hypot(self.stderr * others, MODEL_SD) if others else 0.0

    @property
    def error_median(self) -> float | None:
        """The median error on plans left out of the fit; None with fewer than two plans."""
        return statistics.median(self.errors) if self.errors else None


def fit(profile: Profile, windows: Sequence[PlanWindow], cores: int) -> Interference:
    """Fit the model to windows of several instances whose cell was profiled alone.

    The fit is a ridge regression of the slowdown minus one on the share of the cores that other instances
    keep busy; the result is at least zero. Windows of one instance, or of a cell without a profile point,
    are ignored.
    """
    useful = [w for w in windows if w.instances > 1 and (w.threads, w.batch) in profile.points]
    plans = sorted({(w.instances, w.threads, w.batch) for w in useful})
    share, stderr = _share(profile, useful, cores)
    if len(plans) < 2:
        return Interference(share, cores, len(useful), stderr=stderr)
    errors: list[float] = []
    for plan in plans:
        own = [w for w in useful if (w.instances, w.threads, w.batch) == plan]
        rest = [w for w in useful if (w.instances, w.threads, w.batch) != plan]
        without = Interference(_share(profile, rest, cores)[0], cores)
        measured = statistics.fmean(w.latency_s for w in own)
        errors.append(abs(predicted(profile, without, own[0]) - measured) / measured)
    return Interference(share, cores, len(useful), tuple(errors), stderr)


def predicted(profile: Profile, interference: Interference, window: PlanWindow) -> float:
    """Return the seconds of a window's plan, predicted by the corrected profile."""
    solo = profile.points[window.threads, window.batch].latency_s
    return solo * interference.slowdown(window.threads, window.instances * window.threads)


def _share(profile: Profile, windows: Sequence[PlanWindow], cores: int) -> tuple[float, float]:
    """Return the share and its standard error."""
    numerator, denominator = 0.0, 1.0 / PRIOR_SD**2
    for window in windows:
        solo = profile.points[window.threads, window.batch]
        ratio = window.latency_s / solo.latency_s
        doubt = ratio * math.hypot(
            window.stderr_s / window.latency_s, solo.stderr_s / solo.latency_s
        )
        weight = 1.0 / (MODEL_SD**2 + doubt**2)
        others = (window.instances - 1) * window.threads / cores
        numerator += weight * others * (ratio - 1.0)
        denominator += weight * others**2
    return max(0.0, numerator / denominator), 1.0 / math.sqrt(denominator)
