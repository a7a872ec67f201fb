"""The quantities of metrics, and the name of a standard metric on a device."""

from __future__ import annotations

from tuner.core.quantities import called, quantity_of, standard

FIT = {name: quantity_of(name) for name in ("energy_j", "throughput_per_s")}


def test_a_metric_under_another_name_is_found_by_its_standard_quantity() -> None:
    energy = standard("energy_j")
    assert energy is not None
    assert called("energy_j", {"joules_per_widget": energy}) == "joules_per_widget"
    assert called("energy_j", {**FIT, "joules_per_widget": energy}) == "energy_j"


def test_a_quantile_that_a_device_does_not_offer_keeps_its_name() -> None:
    p95 = standard("latency_p95_ms")
    assert p95 is not None
    assert called("latency_p99_ms", FIT) == "latency_p99_ms"
    assert called("latency_p99_ms", {"latency_p95_ms": p95}) == "latency_p99_ms"
