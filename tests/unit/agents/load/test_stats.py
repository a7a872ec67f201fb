"""The statistics of a load."""

from __future__ import annotations

from agents.load.generator import Tally
from agents.load.stats import shown_by


def test_a_service_that_stalled_past_the_end_has_latencies_and_no_throughput() -> None:
    due = tuple(0.05 * k for k in range(60))
    late = Tally(3.0, due, (7.0,) * 60, tuple(7.0 - moment for moment in due), {})
    shown = shown_by(late)
    assert shown["latency_p99_ms"].mean > 4000.0
    assert "throughput_per_s" not in shown
    assert shown["arrival_rate_per_s"].mean > 0.0
