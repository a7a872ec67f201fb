"""The quantities of a foreign table's columns, from their names."""

from __future__ import annotations

import pytest

from jouletune_bench.replay.names import quantity_named
from tuner.core import Kind, quantity_of


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("latency_p99_ms", Kind.TIME),
        ("makespan_s", Kind.TIME),
        ("throughput_per_s", Kind.RATE),
        ("power_w", Kind.POWER),
        ("gpu_energy_j", Kind.ENERGY),
        ("tokens_per_j", Kind.OTHER),
        ("throughput_per_w", Kind.OTHER),
        ("accuracy", Kind.OTHER),
    ],
)
def test_a_columns_quantity_follows_from_its_name(metric: str, kind: Kind) -> None:
    assert quantity_named(metric).kind is kind


def test_a_standard_name_has_the_same_meaning_everywhere() -> None:
    assert quantity_named("energy_j") == quantity_of("energy_j")


def test_only_quantities_whose_unit_allows_it_may_be_negative() -> None:
    assert quantity_named("accuracy").signed
    assert not quantity_named("queue_p95_s").signed


def test_a_declared_quantile_is_a_tail() -> None:
    assert quantity_named("queue_p95_s").tail
    assert not quantity_named("queue_s").tail
