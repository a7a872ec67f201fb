"""Counters in memory: their sums, their labels, and their greatest number."""

from __future__ import annotations

import pytest

from tests.builders import applied, study, window
from tuner.core import Estimate, Level, Limit, Origin, Outcome, TrialState
from tuner.service.metrics import counts
from tuner.service.metrics.counts import OTHER, Counts

LIMIT = Limit("latency_p99_ms", "<=", 50.0)


def value(counters: Counts, name: str, **labels: str) -> float | None:
    return counters.registry.get_sample_value(name, labels)


def test_a_windows_energy_is_its_power_over_its_length() -> None:
    counters = Counts()
    seen = window(energy_j=10.0, rate=50.0, seconds=10.0)
    counters.measured(study(), "gpu", seen)
    counters.measured(study(), "gpu", seen)
    labels = {"device": "gpu", "workload": "inference"}
    total = value(counters, "jouletune_energy_joules_total", **labels, origin="measured")
    assert total == pytest.approx(2 * 10.0 * 50.0 * 10.0)
    assert value(counters, "jouletune_window_seconds_total", **labels) == 20.0


def test_a_window_without_measured_energy_adds_nothing() -> None:
    counters, seen = Counts(), window()
    seen.estimates.pop("power_w")  # type: ignore[attr-defined]
    seen.estimates.pop("energy_j")  # type: ignore[attr-defined]
    counters.measured(study(), "gpu", seen)
    assert not any("energy" in s.name for m in counters.registry.collect() for s in m.samples)


def test_energies_of_different_origin_are_never_added() -> None:
    counters = Counts()
    guessed = Estimate.of_mean(100.0, 1.0, origin=Origin.ESTIMATED)
    counters.measured(study(), "gpu", window())
    counters.measured(study(), "gpu", window(extra={"power_w": guessed}))
    labels = {"device": "gpu", "workload": "inference"}
    for origin, joules in (("measured", 5000.0), ("estimated", 1000.0)):
        name = "jouletune_energy_joules_total"
        assert value(counters, name, **labels, origin=origin) == pytest.approx(joules)


def test_more_devices_than_have_series_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counts, "MOST_DEVICES", 3)
    monkeypatch.setattr(counts, "MOST_WORKLOADS", 4)
    counters = Counts()
    for number in range(10):
        counters.measured(study(workload=f"w{number % 2}"), f"gpu{number % 5}", window())
    samples = [
        s
        for m in counters.registry.collect()
        for s in m.samples
        if s.name == "jouletune_energy_joules_total"
    ]
    assert len(samples) <= 4 + 1
    assert sum(s.value for s in samples) == pytest.approx(10 * 5000.0)
    assert {s.labels["device"] for s in samples} == {"gpu0", "gpu1", "gpu2", OTHER}


def test_a_hold_that_breaks_a_limit_is_a_violation_and_remembered() -> None:
    counters = Counts()
    assert value(counters, "jouletune_violations_total", level="hold") == 0.0
    counters.held(study(), "gpu", window(latency_p99_ms=100.0), (LIMIT,))
    assert value(counters, "jouletune_violations_total", level="hold") == 1.0
    assert counters.held_windows()["gpu"].broken == "latency_p99_ms"
    counters.held(study(), "gpu", window(latency_p99_ms=10.0), (LIMIT,))
    assert value(counters, "jouletune_violations_total", level="hold") == 1.0
    assert counters.held_windows()["gpu"].broken == ""
    counters.keep([])
    assert not counters.held_windows()


def test_a_trial_counts_by_its_end_and_as_a_violation_if_it_was_cut_short() -> None:
    counters = Counts()
    counters.ended(Outcome(state=TrialState.COMPLETED, measurement=window(), broke=LIMIT))
    counters.ended(Outcome(state=TrialState.FAILED, reason="x"))
    for state in ("completed", "failed"):
        assert value(counters, "jouletune_trials_ended_total", state=state) == 1.0
    assert value(counters, "jouletune_violations_total", level="trial") == 1.0


def test_only_a_device_that_was_held_is_counted_as_restored() -> None:
    counters = Counts()
    name = "jouletune_restores_total"
    for level in (Level.ORIGINAL, Level.HOLD, Level.HOLD, Level.ORIGINAL, Level.ORIGINAL):
        counters.applied(applied("gpu", level=level))
    assert value(counters, name, device="gpu") == 1.0
    counters.applied(applied("new", level=Level.ORIGINAL))
    assert value(counters, name, device="new") == 0.0
