"""The fleet as Prometheus sees it: devices, applied settings, holds, studies and notifications.

Names and base units are those of https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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

Values = dict[tuple[str, ...], float]
"""The samples of a family, by the values of their labels."""
Last = tuple[str, Study | Device, Measurement]
"""A device's name, its study or itself, and its last window."""
MOST_KNOBS = 32
"""The most knobs of a device with series."""
RECENT = 200
"""The number of latest events that are read for events with an alert."""
MS_PER_S = 1000.0


class FleetCollector(Collector):
    """The fleet as metric families. If the database does not answer, only that is yielded."""

    def __init__(self, fleet: FleetOverview, counts: Counts, version: str) -> None:
        self._fleet, self._counts, self._version = fleet, counts, version

    def collect(self) -> Iterator[Metric]:
        """Yield the families of a scrape."""
        yield _gauge(
            "jouletune_build_info", "The tuner's release.", ("version",), {(self._version,): 1.0}
        )
        store = self._fleet.operations.loop.store
        try:
            view, studies = self._fleet.view(), self._fleet.studies()
            deliveries, newest = store.deliveries.list(), store.events.newest()
            recent = store.events.list(last=RECENT)
            budgets = self._fleet.operations.budgets()
        except StoreError:
            yield _one("jouletune_database_up", "Whether the database answers.", 0.0)
            return
        yield _one("jouletune_database_up", "Whether the database answers.", 1.0)
        self._counts.keep([row.device for row in view.rows])
        shown = view.rows[:MOST_DEVICES]
        yield _one(
            "jouletune_devices_left_out",
            f"Devices without their own series, because there are more than {MOST_DEVICES}.",
            float(len(view.rows) - len(shown)),
        )
        summaries = {s.id: self._fleet.summaries.of(s) for s in studies}
        of_studies = {s.id: s.devices for s in studies if isinstance(s, Study)}
        families: Mapping[str, Iterable[Metric]] = {
            "devices": _devices(view),
            "applied settings": _applied(shown),
            "held windows": _held(shown, self._counts.held_windows()),
            "observed windows": _observed(shown, self._counts.observed_windows()),
            "studies": _studies(studies, summaries),
            "notifications": _notifications(deliveries, newest),
            "budgets": _budgets([view for view in budgets if not view.error]),
            "recent events": _recent(recent, of_studies),
        }
        each = self._fleet.operations.loop.changes.rows("the scrape").each
        for name, family in families.items():
            yield from each(name, partial(list, family), lambda _: [])


def _recent(events: Sequence[Event], devices: Mapping[str, tuple[str, ...]]) -> Iterator[Metric]:
    """Yield the time of the latest event with an alert, by kind, device and study.

    An event of a study without a device counts for each of the study's devices.
    """
    values: Values = {}
    for event in events:
        if event.kind in ALERTED:
            for device in (event.device,) if event.device else devices.get(event.study, ("",)):
                values[event.kind, device, event.study] = event.at.timestamp()
    yield _gauge(
        "jouletune_event_timestamp_seconds",
        f"Time of the latest {', '.join(ALERTED)} event of a device, of the latest {RECENT} events.",
        ("kind", "device", "study"),
        values,
    )


def _devices(view: FleetView) -> Iterator[Metric]:
    """Yield the number of devices by status, and whether the emergency stop is in force."""
    yield _gauge(
        "jouletune_devices",
        "Devices by status.",
        ("health",),
        {(str(health),): float(view.health.get(health, 0)) for health in Health},
    )
    yield _one("jouletune_fleet_stopped", "Whether every device is stopped.", float(view.stopped))


def _applied(rows: Sequence[FleetRow]) -> Iterator[Metric]:
    """Yield each device's contact, labels and applied knobs, at most `MOST_KNOBS` each."""
    knobs: Values = {}
    words: Values = {}
    for row in rows:
        for knob, value in sorted((row.setting or {}).items())[:MOST_KNOBS]:
            if isinstance(value, str):
                words[row.device, knob, value] = 1.0
            else:
                knobs[row.device, knob] = float(value)
    one = ("device",)
    yield _gauge(
        "jouletune_device_online",
        "Whether the device had contact within one lease.",
        one,
        {(row.device,): float(row.health is not Health.OFFLINE) for row in rows},
    )
    yield _gauge(
        "jouletune_device_last_heard_timestamp_seconds",
        "Unix time of the last contact with the device.",
        one,
        {(row.device,): row.last_seen.timestamp() for row in rows},
    )
    yield _gauge(
        "jouletune_applied_info",
        "Labels of a device: kind, status, source of its setting, study.",
        ("device", "board", "workload", "health", "level", "study"),
        {
            (r.device, r.board, r.workload, str(r.health), str(r.level), r.study): 1.0
            for r in rows
            if r.level is not None
        },
    )
    yield _gauge(
        "jouletune_applied_knob",
        "Current value of a knob, in the unit at the end of its name.",
        ("device", "knob"),
        knobs,
    )
    yield _gauge(
        "jouletune_applied_knob_info",
        "Current value of a knob whose values are not numbers.",
        ("device", "knob", "value"),
        words,
    )


def _held(rows: Sequence[FleetRow], windows: Mapping[str, HeldWindow]) -> Iterator[Metric]:
    """Yield the metrics of the last window of each device that holds."""
    last = list[Last]()
    broken: Values = {}
    for row in rows:
        held, device = windows.get(row.device), row.device
        if held is None or row.level is not Level.HOLD or row.study != held.study.id:
            continue
        last.append((device, held.study, held.window))
        broken[device, held.study.id] = float(bool(held.broken))
    yield from _last("held", last)
    yield _gauge(
        "jouletune_held_limit_broken",
        "Whether the last held window broke a limit.",
        ("device", "study"),
        broken,
    )


def _observed(
    rows: Sequence[FleetRow], windows: Mapping[str, tuple[Device, Measurement]]
) -> Iterator[Metric]:
    """Yield the metrics of the last window of each device that is only observed, while it is measured."""
    health = {row.device: row.health for row in rows if row.observed and row.device in windows}
    measured = [name for name, word in health.items() if word is Health.OBSERVED]
    yield from _last("observed", [(name, *windows[name]) for name in measured])
    yield _gauge(
        "jouletune_observed_window_timestamp_seconds",
        "Start of the last window of an observed device, also while it is not measured.",
        ("device",),
        {(name,): windows[name][1].started_at.timestamp() for name in health},
    )


def _last(word: str, windows: Sequence[Last]) -> Iterator[Metric]:
    """Yield the latencies and the power of devices' last windows."""
    latency: Values = {}
    power: Values = {}
    for device, of, window in windows:
        for metric, estimate in window.estimates.items():
            quantity = quantity_of(metric, of.quantities)
            if quantity.kind is Kind.TIME and quantity.unit == "ms":
                name = metric.removesuffix("_ms")
                latency[device, of.workload, name] = estimate.mean / MS_PER_S
        drawn = window.estimates.get(called(POWER, of.quantities))
        if drawn is not None:
            power[device, of.workload, str(drawn.origin)] = drawn.mean
    yield _gauge(
        f"jouletune_{word}_latency_seconds",
        f"Latencies and other times in the last {word} window.",
        ("device", "workload", "metric"),
        latency,
    )
    yield _gauge(
        f"jouletune_{word}_power_watts",
        f"Power in the last {word} window.",
        ("device", "workload", "origin"),
        power,
    )


def _studies(
    studies: Sequence[Study | UnreadableStudy], summaries: Mapping[str, StudySummary | None]
) -> Iterator[Metric]:
    """Yield the number of studies by phase, and series for each active study: at most one a device."""
    phases = Counter(str(study.phase) for study in studies)
    yield _gauge(
        "jouletune_studies",
        "Studies by phase.",
        ("phase",),
        {(str(phase),): float(phases[str(phase)]) for phase in Phase},
    )
    yield _gauge(
        "jouletune_study_unreadable",
        "Studies in the database that this tuner cannot read.",
        ("study",),
        {(s.id,): 1.0 for s in studies if isinstance(s, UnreadableStudy)},
    )
    readable = [study for study in studies if isinstance(study, Study)]
    active = [study for study in readable if study.active][:MOST_DEVICES]
    yield _gauge(
        "jouletune_study_info",
        "Active studies.",
        ("study", "workload", "policy", "phase"),
        {(s.id, s.workload, s.policy, str(s.phase)): 1.0 for s in active},
    )
    by_study = {s.id: summary for s in studies if (summary := summaries.get(s.id)) is not None}
    yield _one(
        "jouletune_studies_pending",
        "Studies not yet evaluated, so missing in sums over studies.",
        float(len(studies) - len(by_study)),
    )
    yield _gauge(
        "jouletune_study_limit_not_met",
        "Whether the held setting is proven to break a limit.",
        ("study",),
        {(s.id,): float(by_study[s.id].unmet is not None) for s in active if s.id in by_study},
    )
    yield _gauge(
        "jouletune_study_saving_ratio",
        "Share of the objective that the study's best setting saves.",
        ("study",),
        {
            (s.id,): saving.mean
            for s in active
            if s.id in by_study and (saving := by_study[s.id].saving) is not None
        },
    )
    yield _gauge(
        "jouletune_trials",
        "Trials by state and by verdict under the current limits.",
        ("state", "verdict"),
        _summed(
            ((str(state), str(verdict or "none")), float(n))
            for summary in by_study.values()
            for (state, verdict), n in summary.trials.items()
        ),
    )
    bills = [(s.origin, s.whole, s.explored_j) for s in by_study.values()]
    yield _gauge(
        "jouletune_saved_joules",
        "Energy saved by holding, from the studies' bills.",
        ("origin",),
        _summed(
            ((origin,), whole.saved_j)
            for origin, whole, _ in bills
            if whole is not None and whole.saved_j is not None
        ),
    )
    yield _gauge(
        "jouletune_explored_joules",
        "Energy used by trials, from the studies' bills.",
        ("origin",),
        _summed(((origin,), used) for origin, _, used in bills if used is not None),
    )


def _budgets(views: Sequence[BudgetView]) -> Iterator[Metric]:
    """Yield the watts and members of each group that shares watts."""
    one = ("budget",)
    yield _gauge(
        "jouletune_budget_watts",
        "Watts that a group may draw now.",
        one,
        {(v.name,): v.budget_w for v in views},
    )
    yield _gauge(
        "jouletune_budget_may_draw_watts",
        "The most watts that a group's members may draw.",
        one,
        {(v.name,): v.may_draw_w for v in views},
    )
    yield _gauge(
        "jouletune_budget_missing_watts",
        "Watts above a budget that no reachable member can give up.",
        one,
        {(v.name,): v.missing_w for v in views},
    )
    yield _gauge(
        "jouletune_budget_members",
        "Members of a budget by state.",
        ("budget", "state"),
        _summed(((v.name, m.state), 1.0) for v in views for m in v.members),
    )
    yield _gauge(
        "jouletune_budget_limits_not_met",
        "Members whose cap does not keep their limits.",
        one,
        {(v.name,): float(sum(m.unmet for m in v.members)) for v in views},
    )


def _notifications(deliveries: Sequence[Delivery], newest: int) -> Iterator[Metric]:
    """Yield the backlog and the failures of each destination of the configuration."""
    of = {(d.destination,): d for d in deliveries}
    one = ("destination",)
    yield _gauge(
        "jouletune_notification_events_behind",
        "Events that wait for delivery to a destination.",
        one,
        {key: float(max(0, newest - d.event)) for key, d in of.items()},
    )
    yield _gauge(
        "jouletune_notification_failed_attempts",
        "Failed attempts to send the next notification.",
        one,
        {key: float(d.attempts) for key, d in of.items()},
    )
    given_up = CounterMetricFamily(
        "jouletune_notifications_given_up", "Notifications that were never delivered.", labels=one
    )
    for key, delivery in of.items():
        given_up.add_metric(key, float(delivery.given_up))
    yield given_up


def _summed(parts: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    """Return the sum of the values with equal labels."""
    sums: Values = {}
    for key, value in parts:
        sums[key] = sums.get(key, 0.0) + value
    return sums


def _gauge(name: str, text: str, labels: Sequence[str], values: Values) -> GaugeMetricFamily:
    """Return a gauge family with these samples."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    """Return a gauge family with one sample and no labels."""
    return GaugeMetricFamily(name, text, value=value)
