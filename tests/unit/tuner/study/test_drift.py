"""The detection of drift in noise."""

from __future__ import annotations

import random

import pytest

from tests.builders import metric_sample
from tuner.core import Estimate, MetricSample
from tuner.study.drift import drift


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
