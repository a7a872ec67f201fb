"""Plausible and implausible numbers of a window."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import window
from tuner.core import Estimate, Load, Origin, Quantity, Scope, implausible, not_compared


def claim(energy_j: float = 10.0, power_w: float = 500.0) -> dict[str, Estimate]:
    return {
        "energy_j": Estimate.of_mean(energy_j, 0.0),
        "power_w": Estimate.of_mean(power_w, 0.0),
    }


@pytest.mark.parametrize(
    ("energy_j", "power_w", "why"),
    [
        (0.0, 500.0, "energy_j is 0 J"),
        (1e-300, 500.0, "energy_j is 1e-300 J"),
        (9e99, 500.0, "energy_j is 9e+99"),
        (10.0, 0.0, "power_w is 0 W"),
        (10.0, 1e12, "power_w is 1e+12"),
        (2.0, 500.0, "more than 3 times apart"),
        (40.0, 500.0, "more than 3 times apart"),
    ],
)
def test_an_impossible_value_is_reported_with_its_number(
    energy_j: float, power_w: float, why: str
) -> None:
    assert why in implausible(window(extra=claim(energy_j, power_w)))


def test_a_part_of_the_joules_may_be_none() -> None:
    part = Quantity("J")
    seen = window(extra={**claim(), "waiting_j": Estimate.of_mean(0.0, 0.0)})
    assert implausible(seen, {"waiting_j": part}) == ""


@given(st.floats(0.4, 2.5), st.floats(1e-3, 1e3), st.floats(0.1, 1e4))
def test_an_honest_window_is_believed_in_any_size(
    factor: float, energy_j: float, rate: float
) -> None:
    seen = replace(
        window(extra=claim(energy_j, factor * energy_j * rate)),
        seconds=100.0,
        load=Load(completed=max(1, round(100.0 * rate))),
    )
    assert implausible(seen) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"scope": Scope.PROCESS}, "scope differs"),
        ({"origin": Origin.ESTIMATED}, "origin differs"),
    ],
)
def test_energy_and_power_of_other_meters_are_not_compared(
    changed: dict[str, object], why: str
) -> None:
    both = claim(2.0)
    apart = window(extra={**both, "power_w": replace(both["power_w"], **changed)})  # type: ignore[arg-type]
    assert implausible(apart) == ""
    assert why in not_compared(apart)


def test_a_window_without_items_is_not_compared() -> None:
    blind = replace(window(extra=claim(2.0)), load=Load())
    assert implausible(blind) == ""
    assert not_compared(blind)


@pytest.mark.parametrize("name", ["seconds", "overhead_s"])
@pytest.mark.parametrize("length_s", [1e7, 1e308])
def test_no_window_lasts_for_months(name: str, length_s: float) -> None:
    assert name in implausible(replace(window(), **{name: length_s}))  # type: ignore[arg-type]


@given(
    st.floats(allow_nan=False, min_value=-9e99, max_value=9e99),
    st.floats(min_value=0.0, max_value=9e99),
    st.sampled_from(["", "J", "W", "ms", "s", "1/s", "tokens"]),
    st.booleans(),
)
def test_predictions_can_be_squared_and_divided(
    mean: float, stderr: float, unit: str, signed: bool
) -> None:
    declared = {"score": Quantity(unit, signed=signed)}
    seen = replace(window(), estimates={"score": Estimate.of_mean(mean, stderr)})
    if not implausible(seen, declared):
        for number in (mean, stderr):
            assert number == 0.0 or math.isfinite(1.0 / number**2 + number**2 * 1e15)
