"""The tuner's metrics for Prometheus: counters of this process, and the fleet as it is stored.

A scrape reads devices, studies and applied settings, but no trials. The response has the text format
0.0.4, which every release of Prometheus reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

import db
from tuner.core import StoreError
from tuner.service.fleet import FleetOverview
from tuner.service.http.access_routes import FOR_VIEWERS
from tuner.service.http.bodies import BoundedRoute
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import FleetCollector

METRICS = "/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
CACHE_S = 5.0
"""All clients get the same response within this many seconds."""


class Collected(Protocol):
    """A source of metric families."""

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        ...


class Uncreated(Collector):
    """Families without the creation times of their series, which would double the series for no user."""

    def __init__(self, inner: Collected) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for family in self._inner.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class Labelled(Collector):
    """Families whose series of a device also carry chosen labels of the device, empty if it lacks one."""

    def __init__(self, inner: Collected, store: db.Store, names: Sequence[str]) -> None:
        self._inner, self._store, self._names = inner, store, names

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        labels: dict[str, Mapping[str, str]] = {}
        with suppress(StoreError):  # FleetCollector reports that the database does not answer
            labels = {device.id: device.labels for device in self._store.devices.list()}
        for family in self._inner.collect():
            family.samples = [self._labelled(sample, labels) for sample in family.samples]
            yield family

    def _labelled(self, sample: Sample, labels: Mapping[str, Mapping[str, str]]) -> Sample:
        """Return a sample with its device's labels; a sample without a device unchanged."""
        if "device" not in sample.labels:
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
        for collector in (Uncreated(counts.registry), FleetCollector(fleet, counts, version)):
            self._registry.register(Labelled(collector, store, labels) if labels else collector)
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


def metrics_routes(metrics: Metrics) -> APIRouter:
    """Return the route that Prometheus scrapes, with a viewer's token."""
    router = APIRouter(tags=["health"], dependencies=[FOR_VIEWERS], route_class=BoundedRoute)

    @router.get(METRICS, response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def scrape() -> Response:
        """Return the metrics of the fleet for Prometheus."""
        return Response(metrics.text(), media_type=TEXT)

    return router
