"""The answer to a scrape by Prometheus: counters of this process, and the fleet as it is stored.

A scrape reads devices, studies and applied settings, but no trials. The response has the text format
0.0.4, which every release of Prometheus reads.

Names and base units are those of https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

import db
from tuner.core import (
    POWER,
    Delivery,
    Device,
    Event,
    Kind,
    Level,
    Measurement,
    Phase,
    StoreError,
    Study,
    UnreadableStudy,
    called,
    quantity_of,
)
from tuner.service.fleet import FleetOverview
from tuner.service.metrics.counts import ALERTED, MOST_DEVICES, Counts, HeldWindow
from tuner.service.summaries import StudySummary
from tuner.wire import BudgetView, FleetRow, FleetView, Health

Values = Mapping[tuple[str, ...], float]
"""The samples of a family, by the values of their labels."""
Families = Mapping[str, Values]
"""The samples of some of the `FAMILIES`, by the family's name."""
Last = tuple[str, Study | Device, Measurement]
"""A device's name, its study or itself, and its last window."""
MOST_KNOBS = 32
"""The most knobs of a device with series."""
RECENT = 200
"""The number of latest events that are read for events with an alert."""
MS_PER_S = 1000.0
CACHE_S = 5.0
"""All clients get the same response within this many seconds."""
FAMILIES: Mapping[str, tuple[str, str]] = {
    "build_info": ("version", "The tuner's release."),
    "database_up": ("", "Whether the database answers."),
    "devices": ("health", "Devices by status."),
    "devices_left_out": (
        "",
        f"Devices without their own series, because there are more than {MOST_DEVICES}.",
    ),
    "fleet_stopped": ("", "Whether every device is stopped."),
    "device_online": ("device", "Whether the device had contact within one lease."),
    "device_last_heard_timestamp_seconds": (
        "device",
        "Unix time of the last contact with the device.",
    ),
    "applied_info": (
        "device board workload health level study",
        "Labels of a device: kind, status, source of its setting, study.",
    ),
    "applied_knob": ("device knob", "Current value of a knob, in the unit at the end of its name."),
    "applied_knob_info": (
        "device knob value",
        "Current value of a knob whose values are not numbers.",
    ),
    "held_latency_seconds": (
        "device workload metric",
        "Latencies and other times in the last held window.",
    ),
    "held_power_watts": ("device workload origin", "Power in the last held window."),
    "held_limit_broken": ("device study", "Whether the last held window broke a limit."),
    "observed_latency_seconds": (
        "device workload metric",
        "Latencies and other times in the last observed window.",
    ),
    "observed_power_watts": ("device workload origin", "Power in the last observed window."),
    "observed_window_timestamp_seconds": (
        "device",
        "Start of the last window of an observed device, also while it is not measured.",
    ),
    "studies": ("phase", "Studies by phase."),
    "study_unreadable": ("study", "Studies in the database that this tuner cannot read."),
    "study_info": ("study workload policy phase", "Active studies."),
    "studies_pending": ("", "Studies not yet evaluated, so missing in sums over studies."),
    "study_limit_not_met": ("study", "Whether the held setting is proven to break a limit."),
    "study_saving_ratio": ("study", "Share of the objective that the study's best setting saves."),
    "trials": ("state verdict", "Trials by state and by verdict under the current limits."),
    "saved_joules": ("origin", "Energy saved by holding, from the studies' bills."),
    "explored_joules": ("origin", "Energy used by trials, from the studies' bills."),
    "budget_watts": ("budget", "Watts that a group may draw now."),
    "budget_may_draw_watts": ("budget", "The most watts that a group's members may draw."),
    "budget_missing_watts": (
        "budget",
        "Watts above a budget that no reachable member can give up.",
    ),
    "budget_members": ("budget state", "Members of a budget by state."),
    "budget_limits_not_met": ("budget", "Members whose cap does not keep their limits."),
    "notification_events_behind": (
        "destination",
        "Events that wait for delivery to a destination.",
    ),
    "notification_failed_attempts": (
        "destination",
        "Failed attempts to send the next notification.",
    ),
    "notifications_given_up": ("destination", "Notifications that were never delivered."),
    "event_timestamp_seconds": (
        "kind device study",
        f"Time of the latest {', '.join(ALERTED)} event of a device, of the latest {RECENT} events.",
    ),
}
"""The labels and the description of each family, by its name after `jouletune_`."""
COUNTED = ("notifications_given_up",)
"""The families that are counters; all others are gauges."""


class FleetCollector(Collector):
    """The fleet as metric families. If the database does not answer, only that is yielded."""

    def __init__(self, fleet: FleetOverview, counts: Counts, version: str) -> None:
        self._fleet, self._counts, self._version = fleet, counts, version

    def collect(self) -> Iterator[Metric]:
        """Yield the families of a scrape."""
        yield _family("build_info", {(self._version,): 1.0})
        store = self._fleet.operations.loop.store
        try:
            view, studies = self._fleet.view(), self._fleet.studies()
            deliveries, newest = store.deliveries.list(), store.events.newest()
            recent = store.events.list(last=RECENT)
            budgets = self._fleet.operations.budgets()
        except StoreError:
            yield _family("database_up", {(): 0.0})
            return
        yield _family("database_up", {(): 1.0})
        self._counts.keep([row.device for row in view.rows])
        shown = view.rows[:MOST_DEVICES]
        summaries = {s.id: self._fleet.summaries.of(s) for s in studies}
        of_studies = {s.id: s.devices for s in studies if isinstance(s, Study)}
        parts: Mapping[str, Callable[[], Families]] = {
            "devices": partial(_devices, view, len(view.rows) - len(shown)),
            "applied settings": partial(_applied, shown),
            "held windows": partial(_held, shown, self._counts.held_windows()),
            "observed windows": partial(_observed, shown, self._counts.observed_windows()),
            "studies": partial(_studies, studies, summaries),
            "notifications": partial(_notifications, deliveries, newest),
            "budgets": partial(_budgets, [view for view in budgets if not view.error]),
            "recent events": partial(_recent, recent, of_studies),
        }
        each = self._fleet.operations.loop.changes.rows("the scrape").each
        for name, part in parts.items():
            families: Families = each(name, part, lambda _: {})
            yield from (_family(*family) for family in families.items())


def _family(name: str, values: Values) -> Metric:
    """Return one of the `FAMILIES` with these samples."""
    labels, text = FAMILIES[name]
    kind = CounterMetricFamily if name in COUNTED else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(
        f"jouletune_{name}", text, labels=labels.split()
    )
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _recent(events: Sequence[Event], devices: Mapping[str, tuple[str, ...]]) -> Families:
    """Return the time of the latest event with an alert, by kind, device and study.

    An event of a study without a device counts for each of the study's devices.
    """
    return {
        "event_timestamp_seconds": {
            (event.kind, device, event.study): event.at.timestamp()
            for event in events
            if event.kind in ALERTED
            for device in ((event.device,) if event.device else devices.get(event.study, ("",)))
        }
    }


def _devices(view: FleetView, left_out: int) -> Families:
    """Return the number of devices by status, and whether the emergency stop is in force."""
    return {
        "devices_left_out": {(): float(left_out)},
        "devices": {(str(h),): float(view.health.get(h, 0)) for h in Health},
        "fleet_stopped": {(): float(view.stopped)},
    }


def _applied(rows: Sequence[FleetRow]) -> Families:
    """Return each device's contact, labels and applied knobs, at most `MOST_KNOBS` each."""
    applied = [
        (row.device, knob, value)
        for row in rows
        for knob, value in sorted((row.setting or {}).items())[:MOST_KNOBS]
    ]
    return {
        "device_online": {(row.device,): float(row.health is not Health.OFFLINE) for row in rows},
        "device_last_heard_timestamp_seconds": {
            (row.device,): row.last_seen.timestamp() for row in rows
        },
        "applied_info": {
            (r.device, r.board, r.workload, str(r.health), str(r.level), r.study): 1.0
            for r in rows
            if r.level is not None
        },
        "applied_knob": {
            (device, knob): float(v) for device, knob, v in applied if not isinstance(v, str)
        },
        "applied_knob_info": {
            (device, knob, v): 1.0 for device, knob, v in applied if isinstance(v, str)
        },
    }


def _held(rows: Sequence[FleetRow], windows: Mapping[str, HeldWindow]) -> Families:
    """Return the metrics of the last window of each device that holds."""
    holding = {
        row.device: held
        for row in rows
        if (held := windows.get(row.device)) is not None
        and row.level is Level.HOLD
        and row.study == held.study.id
    }
    broken: Values = {(n, held.study.id): float(bool(held.broken)) for n, held in holding.items()}
    last = [(name, held.study, held.window) for name, held in holding.items()]
    return {**_last("held", last), "held_limit_broken": broken}


def _observed(
    rows: Sequence[FleetRow], windows: Mapping[str, tuple[Device, Measurement]]
) -> Families:
    """Return the metrics of the last window of each device that is only observed, while it is measured."""
    health = {row.device: row.health for row in rows if row.observed and row.device in windows}
    unknown = (Health.NOT_MEASURED, Health.OFFLINE, Health.UNREADABLE)
    measured = [name for name, word in health.items() if word not in unknown]
    started: Values = {(name,): windows[name][1].started_at.timestamp() for name in health}
    last = _last("observed", [(name, *windows[name]) for name in measured])
    return {**last, "observed_window_timestamp_seconds": started}


def _last(word: str, windows: Sequence[Last]) -> Families:
    """Return the latencies and the power of devices' last windows."""
    latency: dict[tuple[str, ...], float] = {}
    power: dict[tuple[str, ...], float] = {}
    for device, of, window in windows:
        for metric, estimate in window.estimates.items():
            quantity = quantity_of(metric, of.quantities)
            if quantity.kind is Kind.TIME and quantity.unit == "ms":
                name = metric.removesuffix("_ms")
                latency[device, of.workload, name] = estimate.mean / MS_PER_S
        drawn = window.estimates.get(called(POWER, of.quantities))
        if drawn is not None:
            power[device, of.workload, str(drawn.origin)] = drawn.mean
    return {
        f"{word}_latency_seconds": latency,
        f"{word}_power_watts": power,
    }


def _studies(
    studies: Sequence[Study | UnreadableStudy], summaries: Mapping[str, StudySummary | None]
) -> Families:
    """Return the number of studies by phase, and series for each active study: at most one a device."""
    phases = Counter(str(study.phase) for study in studies)
    readable = [study for study in studies if isinstance(study, Study)]
    active = [study for study in readable if study.active][:MOST_DEVICES]
    by_study = {s.id: summary for s in studies if (summary := summaries.get(s.id)) is not None}
    evaluated = [(s.id, by_study[s.id]) for s in active if s.id in by_study]
    bills = [(s.origin, s.whole, s.explored_j) for s in by_study.values()]
    return {
        "studies": {(str(phase),): float(phases[str(phase)]) for phase in Phase},
        "study_unreadable": {(s.id,): 1.0 for s in studies if isinstance(s, UnreadableStudy)},
        "study_info": {(s.id, s.workload, s.policy, str(s.phase)): 1.0 for s in active},
        "studies_pending": {(): float(len(studies) - len(by_study))},
        "study_limit_not_met": {
            (name,): float(summary.unmet is not None) for name, summary in evaluated
        },
        "study_saving_ratio": {
            (name,): summary.saving.mean
            for name, summary in evaluated
            if summary.saving is not None
        },
        "trials": _summed(
            ((str(state), str(verdict or "none")), float(n))
            for summary in by_study.values()
            for (state, verdict), n in summary.trials.items()
        ),
        "saved_joules": _summed(
            ((origin,), whole.saved_j)
            for origin, whole, _ in bills
            if whole is not None and whole.saved_j is not None
        ),
        "explored_joules": _summed(
            ((origin,), used) for origin, _, used in bills if used is not None
        ),
    }


def _budgets(views: Sequence[BudgetView]) -> Families:
    """Return the watts and members of each group that shares watts."""
    return {
        "budget_watts": {(v.name,): v.budget_w for v in views},
        "budget_may_draw_watts": {(v.name,): v.may_draw_w for v in views},
        "budget_missing_watts": {(v.name,): v.missing_w for v in views},
        "budget_members": _summed(((v.name, m.state), 1.0) for v in views for m in v.members),
        "budget_limits_not_met": {(v.name,): float(sum(m.unmet for m in v.members)) for v in views},
    }


def _notifications(deliveries: Sequence[Delivery], newest: int) -> Families:
    """Return the backlog and the failures of each destination of the configuration."""
    return {
        "notification_events_behind": {
            (d.destination,): float(max(0, newest - d.event)) for d in deliveries
        },
        "notification_failed_attempts": {(d.destination,): float(d.attempts) for d in deliveries},
        "notifications_given_up": {(d.destination,): float(d.given_up) for d in deliveries},
    }


def _summed(parts: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    """Return the sum of the values with equal labels."""
    sums = dict[tuple[str, ...], float]()
    for key, value in parts:
        sums[key] = sums.get(key, 0.0) + value
    return sums


class Exposed(Collector):
    """Families as they are sent: without creation times, and with chosen labels of devices.

    The creation times of series would double the series for no user. A series of a device gets the labels
    `names` of the device, empty if it lacks one.
    """

    def __init__(
        self, inner: Collector | CollectorRegistry, store: db.Store, names: Sequence[str]
    ) -> None:
        self._inner, self._store, self._names = inner, store, names

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        labels: dict[str, Mapping[str, str]] = {}
        if self._names:
            with suppress(StoreError):  # FleetCollector reports that the database does not answer
                labels = {device.id: device.labels for device in self._store.devices.list()}
        for family in self._inner.collect():
            kept = (s for s in family.samples if not s.name.endswith("_created"))
            family.samples = [self._labelled(sample, labels) for sample in kept]
            yield family

    def _labelled(self, sample: Sample, labels: Mapping[str, Mapping[str, str]]) -> Sample:
        """Return a sample with its device's labels; a sample without a device unchanged."""
        if not self._names or "device" not in sample.labels:
            return sample
        own = labels.get(sample.labels["device"], {})
        return sample._replace(
            labels={**sample.labels, **{name: own.get(name, "") for name in self._names}}
        )


class Metrics:
    """The response of a scrape, computed once in `CACHE_S` seconds.

    `labels` are the names of the device labels that the series carry.
    """

    def __init__(
        self,
        fleet: FleetOverview,
        counts: Counts,
        version: str,
        monotonic: Callable[[], float] = time.monotonic,
        labels: Sequence[str] = (),
    ) -> None:
        self._registry = CollectorRegistry()
        store = fleet.operations.loop.store
        for collector in (counts.registry, FleetCollector(fleet, counts, version)):
            self._registry.register(Exposed(collector, store, labels))
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._text, self._until_s = b"", float("-inf")

    def families(self) -> Iterable[Metric]:
        """Return all metrics as families."""
        return self._registry.collect()

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        with self._lock:  # requests in the meantime wait for the same response
            if self._monotonic() >= self._until_s:
                self._text = generate_latest(self._registry)
                self._until_s = self._monotonic() + CACHE_S
            return self._text
