"""What Prometheus is told of the tuner, its devices and studies.

Names and units are those of https://prometheus.io/docs/practices/naming/. Labels are devices, studies and
knobs: as many as there are, of which each tells one value. What is counted is counted since the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tuner.core import CAPACITY, ENERGY, POWER, Measurement, Store, Study, TrialState, called
from tuner.service.fleet import FleetOverview
from tuner.service.notifications import BY_KIND
from tuner.study.loop import Loop
from tuner.wire import Health

METRICS = "/metrics"
LATENCIES = ("latency_p99_ms", "latency_ms")
KEPT_S = 5.0
"""Two servers that scrape one tuner get the same look at its devices."""
EVENTS_AT_ONCE = 1_000
SUGGESTED_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class LoopCounts:
    """Counts what passes through the loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._suggestion = Histogram(
            "jouletune_suggestion_seconds", "How long a study's next step took to find.",
            buckets=SUGGESTED_S, registry=registry,
        )  # fmt: skip
        where = ("device", "workload")
        self._energy = Counter(
            "jouletune_energy_joules", "Energy of the windows that were measured.",
            (*where, "origin"), registry=registry,
        )  # fmt: skip
        self._windows = Counter(
            "jouletune_windows", "Windows that devices told of: what a trial ended as, or held.",
            ("device", "state"), registry=registry,
        )  # fmt: skip
        self._latency = Gauge(
            "jouletune_latency_seconds", "Latency in the last window: its 99th percentile, or mean.",
            (*where, "metric"), registry=registry,
        )  # fmt: skip
        self._per_item = Gauge(
            "jouletune_item_energy_joules", "Energy of an item in the last window.",
            (*where, "origin"), registry=registry,
        )  # fmt: skip
        self._rate = Gauge(
            "jouletune_items_per_second", "Items a second in the last window.",
            where, registry=registry,
        )  # fmt: skip

    def suggested(self, seconds: float) -> None:
        """Note how long a study's next step took to find."""
        self._suggestion.observe(seconds)

    def reported(
        self, study: Study, device: str, state: TrialState | None, window: Measurement | None
    ) -> None:
        """Note what a device told: how its part in a trial ended; or, without a state, a held window."""
        self._windows.labels(device, str(state) if state is not None else "held").inc()
        if window is None:
            return
        seen, known = window.estimates, study.quantities
        if (power := seen.get(called(POWER, known))) is not None:
            joules = max(0.0, power.mean * (window.seconds + window.overhead_s))
            self._energy.labels(device, study.workload, str(power.origin)).inc(joules)
        if (energy := seen.get(called(ENERGY, known))) is not None:
            self._per_item.labels(device, study.workload, str(energy.origin)).set(energy.mean)
        if (rate := seen.get(called(CAPACITY, known))) is not None:
            self._rate.labels(device, study.workload).set(rate.mean)
        for metric in LATENCIES:
            if metric in seen:
                self._latency.labels(device, study.workload, metric).set(seen[metric].mean / 1e3)


class FleetCollector(Collector):
    """Tells how devices and studies stand, by one look at the database per scrape."""

    def __init__(
        self, fleet: FleetOverview, version: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fleet, self._version, self._monotonic = fleet, version, monotonic
        self._events = EventCounts(fleet.operations.loop.store)
        self._lock = threading.Lock()
        self._seen: tuple[Metric, ...] = ()
        self._seen_s = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """Yield everything."""
        with self._lock:
            if self._monotonic() - self._seen_s >= KEPT_S:
                self._seen = tuple(self._look())
                self._seen_s = self._monotonic()
            yield from self._seen

    def _look(self) -> Iterator[Metric]:
        store = self._fleet.operations.loop.store
        began = self._monotonic()
        store.ping()
        yield _gauge(
            "jouletune_database_answer_seconds", "How long the database took to answer.",
            [((), self._monotonic() - began)],
        )  # fmt: skip
        yield _gauge(
            "jouletune_build_info", "The version that runs.", [((self._version,), 1.0)], "version"
        )
        yield from self._devices()
        yield from self._studies(store)
        yield _gauge(
            "jouletune_trials", "Trials of all studies by their state.",
            [((str(state),), float(n)) for state, n in store.trials.states_now().items()], "state",
        )  # fmt: skip
        events = CounterMetricFamily("jouletune_events", "Entries of the log.", labels=["kind"])
        for kind, count in sorted(self._events.count().items()):
            events.add_metric([kind], count)
        yield events
        untold = [((d.destination,), float(d.attempts)) for d in store.deliveries.list()]
        yield _gauge(
            "jouletune_notification_failed_attempts", "Failed attempts at a destination's next event.",
            untold, "destination",
        )  # fmt: skip

    def _devices(self) -> Iterator[Metric]:
        view = self._fleet.view()
        yield _gauge(
            "jouletune_devices", "Devices by how they stand.",
            [((str(word),), float(view.health.get(word, 0))) for word in Health], "health",
        )  # fmt: skip
        yield _gauge(
            "jouletune_device_health", "1 for how a device stands.",
            [((row.device, str(row.health)), 1.0) for row in view.rows], "device", "health",
        )  # fmt: skip
        yield _gauge(
            "jouletune_device_last_seen_timestamp_seconds", "When a device was last heard of.",
            [((row.device,), row.last_seen.timestamp()) for row in view.rows], "device",
        )  # fmt: skip
        yield _gauge(
            "jouletune_applied_knob", "What is applied, of knobs that are numbers.",
            [
                ((row.device, knob), float(value))
                for row in view.rows
                for knob, value in (row.setting or {}).items()
                if not isinstance(value, str)
            ],
            "device", "knob",
        )  # fmt: skip
        yield _gauge(
            "jouletune_saved_joules", "What holding has saved on a device with a bill of its own.",
            [((r.device, r.study), r.saved_j) for r in view.rows if r.saved_j is not None],
            "device", "study",
        )  # fmt: skip
        yield _gauge(
            "jouletune_saving_ratio", "The share of the objective that the best of a study saves.",
            [((r.device, r.study), r.saving.mean) for r in view.rows if r.saving is not None],
            "device", "study",
        )  # fmt: skip

    def _studies(self, store: Store) -> Iterator[Metric]:
        studies = [study for study in store.studies.list() if study.active]
        yield _gauge(
            "jouletune_study_phase", "1 for the phase that an active study is in.",
            [((study.id, str(study.phase)), 1.0) for study in studies], "study", "phase",
        )  # fmt: skip
        unmet = [
            ((s.id,), float(known.unmet)) for s in studies if (known := self._fleet.summaries.of(s))
        ]
        yield _gauge(
            "jouletune_study_limit_unmet", "1 where what is held breaks a limit.", unmet, "study"
        )


class EventCounts:
    """Counts the entries of the log by kind since it was made, reading on where it was."""

    def __init__(self, store: Store) -> None:
        self._events, self._at = store.events, store.events.newest()
        # Those that alerts wait for begin at 0: of a series that begins at 1 Prometheus sees no increase.
        self._counts = dict.fromkeys(BY_KIND, 0)

    def count(self) -> dict[str, int]:
        """Return how many there were of each kind."""
        while page := self._events.after(self._at, EVENTS_AT_ONCE):
            for event in page:
                self._counts[event.kind] = self._counts.get(event.kind, 0) + 1
            self._at = page[-1].id
        return self._counts


def registry(fleet: FleetOverview, loop: Loop, version: str) -> CollectorRegistry:
    """Return everything that is told; from now on the loop is counted."""
    found = CollectorRegistry()
    ProcessCollector(registry=found)
    found.register(FleetCollector(fleet, version))
    loop.meter = LoopCounts(found)
    return found


def metrics_route(exposed: CollectorRegistry) -> APIRouter:
    """Return the route that Prometheus asks, with a viewer's token."""
    router = APIRouter()

    @router.get(METRICS, include_in_schema=False)
    def metrics() -> Response:
        """Tell everything, in Prometheus' text format."""
        return Response(generate_latest(exposed), media_type=CONTENT_TYPE_LATEST)

    return router


def _gauge(
    name: str, about: str, values: Sequence[tuple[tuple[str, ...], float]], *labels: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
