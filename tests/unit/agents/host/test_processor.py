"""The kernel's files on processors: parsed whole, or refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.host.processor import busy_seconds, model_name
from tests.errors import raised
from tuner.core import MeasurementError

HZ = os.sysconf("SC_CLK_TCK")


@given(st.lists(st.integers(0, 10**12), min_size=7, max_size=10), st.integers(1, 3))
def test_user_nice_system_and_interrupts_are_work(ticks: list[int], gap: int) -> None:
    text = f"cpu{' ' * gap}{' '.join(map(str, ticks))}\ncpu0 9 9 9 9\n"
    worked = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
    assert busy_seconds(text) == pytest.approx(worked / HZ)


@given(st.text(max_size=80).filter(lambda text: not text.startswith("cpu ")))
def test_text_in_another_form_is_a_measurement_error(text: str) -> None:
    with raised(MeasurementError, "/proc/stat"):
        busy_seconds(text)


@pytest.mark.parametrize("text", ["", "cpu", "cpu 1 2 3", "cpu 1 2 3 4 5 6 -7", "cpu0 1 2 3 4"])
def test_too_little_is_refused(text: str) -> None:
    with pytest.raises(MeasurementError):
        busy_seconds(text)


def test_an_arm_kernel_names_no_model() -> None:
    assert model_name("processor\t: 0\nBogoMIPS\t: 50.00\nmodel name\t:\n") == "unknown CPU"
