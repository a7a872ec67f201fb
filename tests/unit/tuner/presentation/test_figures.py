"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core import Estimate, Quantity
from tuner.presentation.figures import change, duration, figure, percent, shown


@pytest.mark.parametrize(
    ("metric", "mean", "stderr", "text"),
    [
        ("energy_j", 0.01234, 0.00012, "12.34 ± 0.12 mJ"),
        ("energy_j", 1234.0, 0.0, "1.234 kJ"),
        ("energy_j", 0.0, 0.0, "0 J"),
        ("latency_p99_ms", 55.25, 1.5, "55.2 ± 1.5 ms"),
        ("latency_ms", 123456.0, 0.0, "123.5 s"),
        ("throughput_per_s", 1234.5, 10.0, "1,234 ± 10 /s"),
        ("power_w", 250.04, 0.31, "250.04 ± 0.31 W"),
        ("acceptance", 0.75, 0.01, "0.750 ± 0.010"),
        ("energy_j", 13.8845, 1.8e-15, "13.88 J"),
    ],
)
def test_a_figure_has_a_fitting_unit_and_the_digits_that_are_known(
    metric: str, mean: float, stderr: float, text: str
) -> None:
    assert figure(metric, mean, stderr) == text


def test_a_declared_metric_is_shown_in_its_unit() -> None:
    declared = {"heat": Quantity("J"), "speed": Quantity("frames/s"), "accuracy": Quantity("1")}
    assert figure("accuracy", 0.95, declared=declared) == "0.9500"
    assert figure("heat", 1234.0, declared=declared) == "1.234 kJ"
    assert figure("speed", 24.0, declared=declared) == "24.00 frames/s"


@given(
    st.sampled_from(["energy_j", "latency_p99_ms", "power_w", "cpu_time_s", "count"]),
    st.floats(1e-9, 1e9),
    st.floats(0.0, 1e6),
)
def test_any_figure_can_be_written(metric: str, mean: float, stderr: float) -> None:
    text = figure(metric, mean, stderr)
    assert ("±" in text) == (stderr > 1e-9 * mean)
    assert "e" not in text.lower().replace("/s", "")


def test_unmeasured_values_are_dashes() -> None:
    assert shown("energy_j", {}) == "–"
    assert shown("energy_j", {"energy_j": Estimate(2.0, 0.1)}) == "2.00 ± 0.10 J"


def test_shares_durations_and_changes_are_shown_as_text() -> None:
    assert percent(0.2312, 0.008) == "23.1 ± 0.8 %"
    assert percent(-0.5) == "-50.0 %"
    assert percent(-0.0001) == "0.0 %"
    assert duration(200.0) == "3.33 min"
    assert duration(0.2) == "0.2 s"
    assert duration(2 * 86400.0) == "2 days"
    assert change({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "b=2"
    assert change({"a": 1}, {"a": 1}) == "the baseline"
    assert change({"b": 2, "a": 1}, {"a": 0, "b": 3}) == "a=1 b=2"
