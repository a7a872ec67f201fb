"""Drift in noise, and the levels of a gain's looks: Student's t against printed tables."""

from __future__ import annotations

import random

import pytest

from tests.builders import metric_sample
from tuner.core import Estimate, MetricSample
from tuner.study import sequential_tests
from tuner.study.sequential_tests import beyond_scatter, drift, proven_t


def held(*energies: float, relative: float = 0.01) -> list[MetricSample]:
    return [metric_sample(n, energy, relative) for n, energy in enumerate(energies)]


EXPECTED = Estimate.of_mean(6.0, 0.06, 20)


def test_noise_around_the_expected_value_is_not_drift() -> None:
    rng = random.Random(3)
    quiet = held(*(6.0 * (1 + rng.gauss(0, 0.015)) for _ in range(300)))
    assert drift("energy_j", EXPECTED, quiet) is None


def test_a_steady_device_raises_no_alarm_for_days_with_any_reference() -> None:
    rng = random.Random(9)
    for _ in range(5):
        reference = Estimate.of_mean(6.0 * (1 + rng.gauss(0, 0.012)), 0.07, 20)
        day = held(*(6.0 * (1 + rng.gauss(0, 0.02)) for _ in range(1440)), relative=0.02)
        assert drift("energy_j", reference, day) is None


@pytest.mark.parametrize("shifted", [6.6, 5.4])
def test_a_lasting_shift_in_either_direction_is_drift(shifted: float) -> None:
    sentence = drift("energy_j", EXPECTED, held(6.0, 6.0, *[shifted] * 10))
    assert sentence is not None
    assert "energy_j has drifted from 6" in sentence


def test_one_odd_window_is_not_drift() -> None:
    assert drift("energy_j", EXPECTED, held(6.0, 6.5, 6.0, 6.0, 6.0, 6.0)) is None


@pytest.mark.parametrize(
    ("freedom", "level", "t"),
    [(1, 0.005, 63.657), (2, 0.005, 9.925), (3, 0.005, 5.841), (4, 0.01, 3.747), (9, 0.025, 2.262)],
)
def test_the_points_are_those_of_the_tables(
    freedom: int, level: float, t: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequential_tests, "LEVELS", (2.0 * level,))
    assert proven_t(freedom, 0, among=2) == pytest.approx(t, abs=6e-4)


def test_two_values_show_no_scatter_and_nothing_is_proven_by_none() -> None:
    assert not beyond_scatter([1.0], [2.0]) and not beyond_scatter([], [2.0, 2.0])
    assert beyond_scatter([1.0, 1.1], [3.0, 3.1]) and not beyond_scatter([1.0, 1.5], [3.0, 2.5])
    assert proven_t(0, 0) > 1e9
