"""Prometheus metrics of the tuner: counters of this process, and the fleet as it is stored.

A scrape reads devices, studies and what is applied; never trials. It is answered in the text format
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

from tuner.core import Store, StoreError
from tuner.service.fleet import FleetOverview
from tuner.service.http.access_routes import FOR_VIEWERS
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import FleetCollector

METRICS = "/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
CACHE_S = 5.0
"""Several Prometheus servers, and other clients get the same response within this time."""


class Collected(Protocol):
    """Whatever gives metric families."""

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        ...


class Uncreated(Collector):
    """Families without the times at which their series began: twice the series, without a user."""

    def __init__(self, inner: Collected) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for family in self._inner.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class Labelled(Collector):
    """Families whose series of a device also carry chosen labels of it, empty where it has none."""

    def __init__(self, inner: Collected, store: Store, names: Sequence[str]) -> None:
        self._inner, self._store, self._names = inner, store, names

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        labels: dict[str, Mapping[str, str]] = {}
        with suppress(StoreError):  # FleetCollector says that the database does not answer
            labels = {device.id: device.labels for device in self._store.devices.list()}
        for family in self._inner.collect():
            family.samples = [self._labelled(sample, labels) for sample in family.samples]
            yield family

    def _labelled(self, sample: Sample, labels: Mapping[str, Mapping[str, str]]) -> Sample:
        if "device" not in sample.labels:
            return sample
        own = labels.get(sample.labels["device"], {})
        return sample._replace(
            labels={**sample.labels, **{name: own.get(name, "") for name in self._names}}
        )


class Metrics:
    """What a scrape is answered, the same for `CACHE_S`.

    `labels` are those of devices, by name, that their series carry.
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

    def text(self) -> bytes:
        """Return all figures in the text format."""
        with self._lock:  # requests meanwhile wait for the same response
            if self._monotonic() >= self._until_s:
                self._text = generate_latest(self._registry)
                self._until_s = self._monotonic() + CACHE_S
            return self._text


def metrics_routes(metrics: Metrics) -> APIRouter:
    """Return the route that Prometheus asks, with a viewer's token."""
    router = APIRouter(tags=["health"], dependencies=[FOR_VIEWERS])

    @router.get(METRICS, response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def scrape() -> Response:
        """Tell Prometheus how the fleet stands."""
        return Response(metrics.text(), media_type=TEXT)

    return router
