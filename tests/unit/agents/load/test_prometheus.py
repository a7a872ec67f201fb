"""A service with its own histogram, like any service and not only Ray."""

from __future__ import annotations

import math

import pytest

from agents.load.exposition import Histogram
from agents.load.meter import Totals
from agents.load.prometheus import Figures, PrometheusWindow
from tests.builders import Time
from tests.errors import raised
from tuner.core import MeasurementError

EDGES = (10.0, 20.0, math.inf)


class Service:
    """Reports a histogram with one bucket in use, and its CPU time."""

    def __init__(self) -> None:
        self.answered = self.failed = 0

    def figures(self) -> Figures:
        return Figures(Histogram(EDGES, (0, self.answered, 0)), self.failed)

    def counting(self) -> Totals:
        return lambda: {"cpu_s": 0.01 * self.answered}


def test_latencies_totals_and_rates_are_those_since_the_window_was_opened() -> None:
    service, time = Service(), Time()
    service.answered = 1000
    window = PrometheusWindow(service.figures, service.counting, time, 0.0)
    for _ in range(5):
        time.sleep(1.0)
        service.answered += 50
        reading = window.read()
    assert reading.totals["items"] == 250.0
    assert reading.totals["failed"] == 0.0
    median = reading.estimates["latency_p50_ms"]
    assert (median.low, median.high) == (10.0, 20.0)
    assert reading.estimates["throughput_per_s"].mean == pytest.approx(50.0)


def test_a_restarted_service_gives_no_measurement() -> None:
    service, time = Service(), Time()
    service.failed = 3
    window = PrometheusWindow(service.figures, service.counting, time, 0.0)
    service.failed = 0
    with raised(MeasurementError, "backwards"):
        window.read()
