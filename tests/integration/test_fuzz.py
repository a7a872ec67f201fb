"""Hosts with wrong files and GPUs with wrong answers: a few cases of `make fuzz`."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.crashes import Crashes
from tuner.errors import ActuationError


@pytest.mark.slow
def test_nothing_crashes_and_the_answer_is_one_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["60", "0"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["cases"], result["crashes"], result["crashed"]) == (60, 0, [])
    assert result["hosts"]["cases"] >= 40


def test_an_error_of_ours_is_an_answer_and_any_other_a_crash_with_its_place() -> None:
    crashes = Crashes()
    with crashes.case("a"), crashes.contained("a"):
        raise ActuationError("refused")
    with crashes.case("b"), crashes.contained("agent: b"):
        raise IndexError("nothing there")
    assert crashes.cases == 2
    (crash,) = crashes.found
    assert crash["case"] == "agent: b" and "test_fuzz.py" in crash["where"]
