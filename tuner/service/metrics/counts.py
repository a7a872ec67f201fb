"""What the tuner counts in memory, from its start on: Prometheus takes a counter that restarts.

Names and base units are those of https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from tuner.core import (
    Applied,
    Level,
    Limit,
    Measurement,
    Outcome,
    Study,
    Verdict,
    judge,
    window_energy,
)
from tuner.study.telemetry import Telemetry

MOST_DEVICES = 1_000
"""How many devices have series of their own; what others add up is counted under `OTHER`."""
MOST_WORKLOADS = 2 * MOST_DEVICES
"""How many pairs of a device and what ran on it."""
OTHER = "other"
ALERTED = ("hold ended", "drift", "baseline drifted")
"""Kinds of events with an alert, counted from zero on."""
SUGGESTION_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)
TRANSACTION_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """What a device showed when its hold was last measured; `broken` is the limit it broke, if any."""

    study: Study
    window: Measurement
    broken: str


class Counts(Telemetry):
    """Counts what the loop tells, and how long the database takes. Safe from many threads.

    `registry` has the counters; `held` is the last window of each device's hold.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._devices: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._levels: dict[str, Level] = {}
        self._held: dict[str, HeldWindow] = {}
        self._energy = self._counter(
            "jouletune_energy_joules",
            "Energy measured in windows; nothing is measured between windows.",
            "device",
            "workload",
            "origin",
        )
        self._seconds = self._counter(
            "jouletune_window_seconds",
            "Length of the windows whose energy is counted in jouletune_energy_joules_total.",
            "device",
            "workload",
        )
        self._violations = self._counter(
            "jouletune_violations",
            "Windows that broke a limit: aborted trials and held windows.",
            "level",
        )
        self._ended = self._counter(
            "jouletune_trials_ended", "Ended trials, by their state.", "state"
        )
        self._restores = self._counter(
            "jouletune_restores",
            "Times that a device reverted from its hold to its original setting.",
            "device",
        )
        self._events = self._counter(
            "jouletune_events", "Events of the operator's log, by kind.", "kind"
        )
        self._dropped = self._counter(
            "jouletune_connections_dropped",
            "Connections dropped because the client was too slow to send or read.",
        )
        self._refused = self._counter(
            "jouletune_requests_refused",
            "Refused requests not in the audit log: no valid token, or over the rate limit.",
            "status",
        )
        self._suggestions = Histogram(
            "jouletune_suggestion_seconds",
            "Time to decide a study's next step while tuning.",
            ["policy"],
            buckets=SUGGESTION_S,
            registry=self.registry,
        )
        self._transactions = Histogram(
            "jouletune_database_transaction_seconds",
            "Duration of a transaction, from its begin to its commit.",
            ["kind"],
            buckets=TRANSACTION_S,
            registry=self.registry,
        )
        for level in (Level.TRIAL, Level.HOLD):
            self._violations.labels(str(level))
        for kind in ALERTED:
            self._events.labels(kind)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def noted(self, kind: str) -> None:
        """Count an event."""
        self._events.labels(kind).inc()

    def measured(self, study: Study, device: str, window: Measurement) -> None:
        """Add up a window's energy, where a meter saw it."""
        shown = window_energy(window, study.quantities)
        if shown is None:
            return
        joules, origin = shown
        pair = self._pair(device, study.workload)
        self._energy.labels(*pair, str(origin)).inc(joules)
        self._seconds.labels(*pair).inc(window.seconds)

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        """Keep a hold's window as its device's last one, and count it where it broke a limit."""
        verdicts = ((x, judge(window.estimates, (x,))) for x in limits)
        broken = next((x.metric for x, verdict in verdicts if verdict is Verdict.INFEASIBLE), "")
        if broken:
            self._violations.labels(str(Level.HOLD)).inc()
        with self._lock:
            self._held[device] = HeldWindow(study, window, broken)

    def ended(self, outcome: Outcome) -> None:
        """Count a trial by how it ended."""
        self._ended.labels(str(outcome.state)).inc()
        if outcome.broke is not None:
            self._violations.labels(str(Level.TRIAL)).inc()

    def applied(self, applied: Applied) -> None:
        """Count a device that is back at its original since it was last heard of."""
        with self._lock:
            before = self._levels.get(applied.device)
            self._levels[applied.device] = applied.level
        restores = self._restores.labels(self._device(applied.device))
        if before is Level.HOLD and applied.level is not Level.HOLD:
            restores.inc()

    def suggested(self, policy: str, seconds: float) -> None:
        """Note how long a step took."""
        self._suggestions.labels(policy).observe(seconds)

    def transaction(self, kind: str, seconds: float) -> None:
        """Note how long a transaction took."""
        self._transactions.labels(kind).observe(seconds)

    def dropped(self) -> None:
        """Count a connection that was dropped."""
        self._dropped.inc()

    def refused(self, status: int) -> None:
        """Count a refusal that is not stored."""
        self._refused.labels(str(status)).inc()

    def held_windows(self) -> Mapping[str, HeldWindow]:
        """Return the last window of each device's hold, by the device."""
        with self._lock:
            return dict(self._held)

    def keep(self, devices: Sequence[str]) -> None:
        """Forget the last windows and levels of all devices but these; what was counted stays."""
        current = set(devices)
        with self._lock:
            for recorded in (self._held, self._levels):
                for outdated in recorded.keys() - current:
                    del recorded[outdated]

    def _pair(self, device: str, workload: str) -> tuple[str, str]:
        pair = self._device(device), workload
        with self._lock:
            if pair[0] == OTHER or (pair not in self._pairs and len(self._pairs) >= MOST_WORKLOADS):
                return OTHER, OTHER
            self._pairs.add(pair)
            return pair

    def _device(self, device: str) -> str:
        """Return what a device is counted under: its series stay when it is forgotten."""
        with self._lock:
            if device not in self._devices and len(self._devices) >= MOST_DEVICES:
                return OTHER
            self._devices.add(device)
            return device
