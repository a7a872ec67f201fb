"""A printed number is finite, or refused."""

from __future__ import annotations

import re

import pytest

from agents.host.service_files import Printed, finite, number
from tests.errors import raised
from tuner.core import MeasurementError
from tuner.core.witnesses import NUMBER


@pytest.mark.parametrize("raw", [None, True, "x", "nan", "1e308", "1e999", 10**400, [], {}])
def test_a_value_that_cannot_be_reported_is_refused(raw: object) -> None:
    assert finite(raw) is None
    assert finite("2.5") == 2.5 and finite(3) == 3.0


@pytest.mark.parametrize(
    "last",
    ["nan", "tensor(nan)", "np.float64(0.3)", "[0.3]", "overflow", "-", "1.#IND", "", "None"],
)
def test_a_last_line_without_a_plain_number_is_not_the_line_before(last: str) -> None:
    pattern = re.compile(f"loss=({NUMBER})")
    assert number(Printed(pattern=pattern), "loss=0.7\nloss=0.5") == 0.5
    with raised(MeasurementError):
        number(Printed(pattern=pattern), f"loss=0.5\nloss={last}")


@pytest.mark.parametrize(
    "text", ['{"a": ' * 100_000, '{"x": ' + "[" * 100_000, '{"x": ' + "9" * 400 + "}"]
)
def test_a_line_of_hostile_json_gives_no_number(text: str) -> None:
    with raised(MeasurementError):
        number(Printed(json="x"), text)
