"""A service under our load: the results of the callers, and the service's own counters."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agents.host.machine import HostClock
from agents.load.generator import MOST_REASONS, LoadRun, LoadShape, Tally
from agents.load.meter import LoadMeter, LoadWindow, Totals, shown_by
from agents.load.streaming import stream_error
from tuner.bounds import bounded
from tuner.core import FAILURES, Reading


def test_a_service_that_stalled_past_the_end_has_latencies_and_no_throughput() -> None:
    due = tuple(0.05 * k for k in range(60))
    late = Tally(3.0, due, (7.0,) * 60, tuple(7.0 - moment for moment in due), {})
    shown = shown_by(late)
    assert shown["latency_p99_ms"].mean > 4000.0
    assert "throughput_per_s" not in shown
    assert shown["arrival_rate_per_s"].mean > 0.0


@dataclass
class Answering:
    """A connection to a service that answers at once."""

    closed: bool = False

    def send(self) -> str:
        time.sleep(0.001)
        return ""

    def close(self) -> None:
        self.closed = True


class Refusing(Answering):
    """A connection to a service that refuses every request."""

    def send(self) -> str:
        super().send()
        return "HTTP 405"


def shown(counts: Mapping[str, float]) -> Reading:
    """Return the reading of a window after some answers; `counts` are the service's own counters."""

    def counting() -> Totals:
        return lambda: counts

    meter = LoadMeter(Answering, LoadShape(2), counting, HostClock(), 0)
    window = meter.start()
    while window.read().estimates.get("latency_p99_ms") is None:
        time.sleep(0.001)
    reading = window.stop()
    meter.close()
    return reading


def test_a_service_without_metrics_is_measured_by_its_callers_alone() -> None:
    reading = shown({})
    assert reading.totals["items"] == reading.estimates["latency_p99_ms"].n
    assert reading.totals.keys() == {"items", "failed"}


def test_the_services_own_count_is_used_and_a_batchs_items_are_one_observation() -> None:
    reading = shown({"items": 4000.0, "cpu_s": 2.0, "batches": 4.0})
    assert reading.totals == {"items": 4000.0, "failed": 0.0, "cpu_s": 2.0}
    assert reading.estimates["latency_p99_ms"].n == 1


def test_failed_requests_are_noted_by_reason() -> None:
    meter = LoadMeter(Refusing, LoadShape(2), lambda: dict, HostClock(), 0)
    window = meter.start()
    while not window.read().totals["failed"]:
        time.sleep(0.001)
    reading = window.stop()
    assert reading.notes == {FAILURES: f"{reading.totals['failed']:g} × HTTP 405"}


class Wordy(Answering):
    """A connection to a server that writes its own text, different each time, into each error."""

    number = 0

    def send(self) -> str:
        Wordy.number += 1
        said = f"request {Wordy.number} http://ann:t@p@db/ \x9b{'x' * 500}"
        text = f'data: {{"error":{{"message":"{said}"}}}}'
        return stream_error(text.encode())


def test_the_note_on_failures_is_within_the_bounds_of_a_message() -> None:
    clock = HostClock()
    run = LoadRun(Wordy, LoadShape(4, rate_per_s=2000.0), clock=clock, max_requests=300)
    assert run.wait().failed == 300
    reading = LoadWindow(run, dict).stop()
    bounded(dict(reading.notes))
    assert "ann" not in reading.notes[FAILURES] and "t@p" not in reading.notes[FAILURES]
    assert len(run.read().failures) <= MOST_REASONS + 1
    counts = [int(one.split()[0]) for one in reading.notes[FAILURES].split(", ")]
    assert sum(counts) == 300 and counts[0] > 200


def of(latencies_s: Sequence[float]) -> Tally:
    """Return the tally of requests one after the other."""
    ends = tuple(accumulate(latencies_s))
    return Tally(ends[-1], (0.0, *ends[:-1]), ends, tuple(latencies_s), {})


def test_the_mean_of_forty_requests_is_within_its_errors_as_often_as_that_of_many() -> None:
    rng = random.Random(0)
    for n in (40, 100):
        shown = [
            shown_by(of([rng.gauss(1.0, 0.2) for _ in range(n)]))["latency_mean_ms"]
            for _ in range(1000)
        ]
        inside = sum(abs(one.mean - 1000.0) <= 1.96 * one.stderr for one in shown)
        assert 920 <= inside <= 980, (n, inside)
    assert "latency_mean_ms" not in shown_by(of([1.0] * 39))
