"""What names tell of metrics."""

from __future__ import annotations

import pytest

from tuner.bo.metrics import Quantity, quantity


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("latency_p99_ms", Quantity.TIME),
        ("makespan_s", Quantity.TIME),
        ("throughput_per_s", Quantity.RATE),
        ("power_w", Quantity.POWER),
        ("energy_j", Quantity.ENERGY),
        ("accuracy", Quantity.NONE),
        ("dropped", Quantity.NONE),
    ],
)
def test_a_metrics_name_tells_what_it_is(metric: str, expected: Quantity) -> None:
    assert quantity(metric) is expected


@pytest.mark.parametrize("metric", ["tokens_per_j", "throughput_per_w"])
def test_work_per_energy_is_no_energy(metric: str) -> None:
    assert quantity(metric) not in (Quantity.ENERGY, Quantity.POWER)
