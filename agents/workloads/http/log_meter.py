"""Measures a service's requests by its log, line by line; sends none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agents.host.log_follower import LogFollower
from agents.host.service_files import finite, whole
from agents.load.meter import Totals
from agents.load.prometheus import ARRIVALS, QUANTILES
from agents.load.window import OpenWindow
from agents.workloads.http.metric_config import ITEMS, LATENCY, LogLines
from tuner.core import (
    NUMBER,
    Clock,
    Estimate,
    Latencies,
    MeasurementError,
    Metric,
    Reading,
    Scope,
    quantile_estimate,
    ratio_estimate,
)

MEAN = Metric("latency_mean_ms", scope=Scope.SERVICE)


@dataclass(slots=True)
class LogLook:
    """The data of one reading of the log: lines, items, failures, and each group's sum."""

    seconds: float
    lines: int = 0
    items: float = 0.0
    failed: int = 0
    sums: dict[str, float] = field(default_factory=dict)


class LogWindow(OpenWindow):
    """An open window over the lines of a log from now on; each reading adds those since the last one.

    `counting` starts to count further totals of the service (`cpu_s`); None if another meter counts them.
    """

    def __init__(self, log: LogLines, counting: Callable[[], Totals] | None, clock: Clock) -> None:
        self._totals = None if counting is None else counting()
        self._log, self._follower, self._clock = log, LogFollower(log.file), clock
        self._last_s = clock.monotonic()
        self._latencies_ms: list[float] = []
        self._looks: list[LogLook] = []

    def _shown(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""
        now_s = self._clock.monotonic()
        look = LogLook(now_s - self._last_s)
        self._last_s = now_s
        for line in self._follower.lines():
            self._take(line, look)
        self._looks.append(look)
        return self._reading()

    def _ended(self) -> Reading:
        """Close the log and return the window's metrics. Raises MeasurementError."""
        try:
            shown, each_ms = self._shown(), self._latencies_ms
            return replace(shown, latencies=Latencies.of(each_ms) if self._log.latency else None)
        finally:
            self._follower.close()

    def _take(self, line: str, look: LogLook) -> None:
        """Add one line to a reading. Raises MeasurementError."""
        if self._log.failed is not None and self._log.failed.search(line):
            look.failed += 1
            return
        match = self._log.pattern.search(line)
        if match is None:
            return
        numbers = {name: _number(name, match, line) for name in match.groupdict()}
        look.lines += 1
        look.items += numbers.pop(ITEMS, 1.0)
        for name, value in numbers.items():
            if name in LATENCY:
                self._latencies_ms.append(value * LATENCY[name])
            look.sums[name] = look.sums.get(name, 0.0) + value

    def _reading(self) -> Reading:
        """Return the metrics from all lines so far."""
        totals = {} if self._totals is None else dict(self._totals())
        if self._log.has_items:
            totals["items"] = math.fsum(look.items for look in self._looks)
            totals["failed"] = float(sum(look.failed for look in self._looks))
        return Reading(totals, self._of_groups() | self._of_requests())

    def _of_groups(self) -> dict[str, Estimate]:
        """Return each further group's mean over the lines, with the scatter between readings."""
        shown = {metric.name: self._mean(metric.name, 1.0, metric) for metric in self._log.listed}
        return {name: mean for name, mean in shown.items() if mean is not None}

    def _of_requests(self) -> dict[str, Estimate]:
        """Return latencies and arrival rate; empty if the log has no latency."""
        group, latencies_ms = self._log.latency, self._latencies_ms
        if not group or not latencies_ms:
            return {}
        shown = {name: quantile_estimate(latencies_ms, share) for name, share in QUANTILES.items()}
        mean = self._mean(group, LATENCY[group], MEAN)
        arrivals = [(float(look.lines + look.failed), look.seconds) for look in self._looks]
        rate = ratio_estimate(arrivals, 1.0, ARRIVALS)
        more = {MEAN.name: mean, ARRIVALS.name: rate}
        return shown | {name: one for name, one in more.items() if one is not None}

    def _mean(self, group: str, scale: float, metric: Metric) -> Estimate | None:
        """Return a group's mean per line, with the scatter between readings."""
        steps = [
            (look.sums.get(group, 0.0), float(look.lines)) for look in self._looks if look.lines
        ]
        return ratio_estimate(steps, scale, metric)


def _number(name: str, match: re.Match[str], line: str) -> float:
    """Return the number of a group. Raises MeasurementError."""
    text, unit = match[name], name.removeprefix("latency_") if name in LATENCY else ""
    if text is None or (value := finite(whole(match, name, unit))) is None:
        raise MeasurementError(
            f"the group {name} of a log line is not a number: {text!r} in {line[:200]!r}",
            hint=f"let the pattern match numbers only, like (?P<latency_s>{NUMBER})",
        )
    return value
