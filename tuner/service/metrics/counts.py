"""Counters in the tuner's memory, from zero at each start: Prometheus accepts counters that restart.

Names and base units are those of https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from tuner.core import (
    Applied,
    Device,
    Level,
    Limit,
    Measurement,
    Outcome,
    Study,
    Verdict,
    judge,
    window_energy,
)
from tuner.study.changes import Telemetry

MOST_DEVICES = 1_000
"""The most devices with their own series; counts of all further devices go to `OTHER`."""
MOST_WORKLOADS = 2 * MOST_DEVICES
"""The most pairs of a device and a workload with their own series."""
OTHER = "other"
ALERTED = ("hold ended", "drift", "baseline drifted")
"""Kinds of events with an alert. Their counters exist from the start, at zero."""
COUNTERS = {
    "energy_joules": (
        "device workload origin",
        "Energy measured in windows; nothing is measured between windows.",
    ),
    "window_seconds": (
        "device workload",
        "Length of the windows whose energy is counted in jouletune_energy_joules_total.",
    ),
    "violations": ("level", "Windows that broke a limit: aborted trials and held windows."),
    "trials_ended": ("state", "Ended trials, by their state."),
    "restores": (
        "device",
        "Times that a device reverted from its hold to its original setting.",
    ),
    "events": ("kind", "Events of the operator's log, by kind."),
    "connections_dropped": (
        "",
        "Connections dropped because the client was too slow to send or read.",
    ),
    "requests_refused": (
        "status",
        "Refused requests not in the audit log: no valid token, or over the rate limit.",
    ),
}
"""The labels and the description of each counter, by its name after `jouletune_`."""
HISTOGRAMS = {
    "suggestion_seconds": (
        "policy",
        "Time to decide a study's next step while tuning.",
        (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0),
    ),
    "database_transaction_seconds": (
        "kind",
        "Duration of a transaction, from its begin to its commit.",
        (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    ),
}
"""The label, the description and the buckets in seconds of each histogram."""


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """The last window of a device's hold; `broken` is the metric whose limit it broke, empty if none."""

    study: Study
    window: Measurement
    broken: str


class Counts(Telemetry):
    """Counts the loop's telemetry and times the database's transactions. Safe from many threads.

    `registry` has the counters. `held_windows` returns the last window of each device's hold.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._devices: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._levels: dict[str, Level] = {}
        self._held: dict[str, HeldWindow] = {}
        self._observed: dict[str, tuple[Device, Measurement]] = {}
        self._counters = {
            name: Counter(f"jouletune_{name}", text, labels.split(), registry=self.registry)
            for name, (labels, text) in COUNTERS.items()
        }
        self._seconds = {
            name: Histogram(
                f"jouletune_{name}", text, [label], buckets=buckets, registry=self.registry
            )
            for name, (label, text, buckets) in HISTOGRAMS.items()
        }
        for level in (Level.TRIAL, Level.HOLD):
            self._counters["violations"].labels(str(level))
        for kind in ALERTED:
            self._counters["events"].labels(kind)

    def noted(self, kind: str) -> None:
        """Count an event by its kind."""
        self._counters["events"].labels(kind).inc()

    def measured(self, of: Study | Device, device: str, window: Measurement) -> None:
        """Add a window's energy and length to the totals; a window without measured energy adds nothing."""
        shown = window_energy(window, of.quantities)
        if shown is None:
            return
        joules, origin = shown
        pair = self._pair(device, of.workload)
        self._counters["energy_joules"].labels(*pair, str(origin)).inc(joules)
        self._counters["window_seconds"].labels(*pair).inc(window.seconds)

    def observed(self, device: Device, window: Measurement) -> None:
        """Store a window as the last one of a device that is only observed."""
        with self._lock:
            self._observed[device.id] = device, window

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        """Store a hold's window as the last one of its device, and count it if it broke a limit."""
        verdicts = ((x, judge(window.estimates, (x,))) for x in limits)
        broken = next((x.metric for x, verdict in verdicts if verdict is Verdict.INFEASIBLE), "")
        if broken:
            self._counters["violations"].labels(str(Level.HOLD)).inc()
        with self._lock:
            self._held[device] = HeldWindow(study, window, broken)

    def ended(self, outcome: Outcome) -> None:
        """Count a trial by its final state, and count its broken limit."""
        self._counters["trials_ended"].labels(str(outcome.state)).inc()
        if outcome.broke is not None:
            self._counters["violations"].labels(str(Level.TRIAL)).inc()

    def applied(self, applied: Applied) -> None:
        """Count a restore if a device's last reported setting was a hold's and the new one is not."""
        with self._lock:
            before = self._levels.get(applied.device)
            self._levels[applied.device] = applied.level
        restores = self._counters["restores"].labels(self._device(applied.device))
        if before is Level.HOLD and applied.level is not Level.HOLD:
            restores.inc()

    def suggested(self, policy: str, seconds: float) -> None:
        """Record the time that a policy needed for a study's next step, in seconds."""
        self._seconds["suggestion_seconds"].labels(policy).observe(seconds)

    def transaction(self, kind: str, seconds: float) -> None:
        """Record the duration of a transaction, in seconds."""
        self._seconds["database_transaction_seconds"].labels(kind).observe(seconds)

    def dropped(self) -> None:
        """Count a dropped connection."""
        self._counters["connections_dropped"].inc()

    def refused(self, status: int) -> None:
        """Count a refused request that the audit log does not store."""
        self._counters["requests_refused"].labels(str(status)).inc()

    def held_windows(self) -> Mapping[str, HeldWindow]:
        """Return the last window of each device's hold, by device."""
        with self._lock:
            return dict(self._held)

    def observed_windows(self) -> Mapping[str, tuple[Device, Measurement]]:
        """Return each observed device with its last window, by its id."""
        with self._lock:
            return dict(self._observed)

    def keep(self, devices: Sequence[str]) -> None:
        """Forget the last window and level of every device but these; the counters stay."""
        current = set(devices)
        with self._lock:
            for recorded in (self._held, self._observed, self._levels):
                for outdated in recorded.keys() - current:
                    del recorded[outdated]

    def _pair(self, device: str, workload: str) -> tuple[str, str]:
        """Return the labels of a device and its workload; `OTHER` for both above the limits."""
        pair = self._device(device), workload
        with self._lock:
            if pair[0] == OTHER or (pair not in self._pairs and len(self._pairs) >= MOST_WORKLOADS):
                return OTHER, OTHER
            self._pairs.add(pair)
            return pair

    def _device(self, device: str) -> str:
        """Return the label of a device, `OTHER` above the limit; a forgotten device keeps its series."""
        with self._lock:
            if device not in self._devices and len(self._devices) >= MOST_DEVICES:
                return OTHER
            self._devices.add(device)
            return device
