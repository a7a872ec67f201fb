"""A metric is unchanged after its conversion to the model's scale and back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tuner.bo.scale import LEAST_NOISE, Scale


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_positive_metrics_are_taken_as_factors(reference: float, value: float) -> None:
    scale = Scale.of(reference, [value])
    assert scale.log
    assert scale.share == 1.0
    assert scale.place(reference) == 0.0
    assert scale.prediction(scale.place(value), 0.0).mean == pytest.approx(value)


@given(st.floats(-1e6, 1e6), st.lists(st.floats(-1e6, 1e6), max_size=4))
def test_any_other_metric_is_taken_as_a_difference(reference: float, values: list[float]) -> None:
    scale = Scale.of(reference, [*values, 0.0])
    assert not scale.log
    for value in values:
        assert abs(scale.place(value)) <= 2.0
        back = scale.prediction(scale.place(value), 0.0).mean
        assert back == pytest.approx(value, abs=1e-6 * max(1.0, abs(reference)))


@given(st.floats(1.0, 1e6), st.floats(-1e6, 0.0))
def test_differences_are_shown_as_shares_of_the_reference(reference: float, value: float) -> None:
    for sign in (1.0, -1.0):
        scale = Scale.of(sign * reference, [sign * value])
        share = scale.share * scale.place(sign * value)
        assert share == pytest.approx(sign * (value - reference) / reference)


def test_the_share_of_a_reference_of_zero_is_one() -> None:
    assert Scale.of(0.0, [0.0]).share == Scale.of(0.0, [7.0]).share == 1.0


@pytest.mark.parametrize(("mean", "sd"), [(1e4, 0.1), (0.0, 1e3), (1e4, 1e3)])
def test_an_extreme_prediction_is_still_finite(mean: float, sd: float) -> None:
    prediction = Scale(100.0, True).prediction(mean, sd)
    assert math.isfinite(prediction.mean)
    assert math.isfinite(prediction.sd)


def test_a_prediction_has_the_moments_of_a_lognormal() -> None:
    prediction = Scale(100.0, True).prediction(math.log(0.8), 0.1)
    source = torch.Generator().manual_seed(7)
    noise = torch.randn(200_000, dtype=torch.float64, generator=source)
    draws = torch.exp(math.log(80.0) + 0.1 * noise)
    assert prediction.mean == pytest.approx(float(draws.mean()), rel=0.01)
    assert prediction.sd == pytest.approx(float(draws.std()), rel=0.02)


def test_no_window_is_believed_to_be_exact() -> None:
    assert Scale(100.0, True).width(50.0, 0.0) == LEAST_NOISE
    assert Scale(100.0, True).width(50.0, 5.0) == pytest.approx(0.1)
    assert Scale(0.0, False, 20.0).width(0.0, 5.0) == pytest.approx(0.25)
