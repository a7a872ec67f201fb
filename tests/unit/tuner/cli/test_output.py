"""JSON on stdout is strict JSON for every input."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import START
from tuner.cli.output import echo_json, plain
from tuner.core import Estimate, Phase
from tuner.wire import Problem


def test_bounds_that_are_infinite_become_null() -> None:
    shown = plain(Estimate(2.0, 0.1, high=math.inf))
    assert isinstance(shown, dict)
    assert shown["mean"] == 2.0
    assert shown["high"] is None
    assert shown["origin"] == "measured"


def test_messages_times_and_enums_become_plain_json() -> None:
    message = Problem(code="x", message="y")
    assert plain(message) == {"code": "x", "message": "y", "hint": ""}
    assert plain({"at": START, "phase": Phase.TUNING, "all": (1, True)}) == {
        "at": "2026-01-01T12:00:00+00:00",
        "phase": "tuning",
        "all": [1, True],
    }


@given(st.recursive(st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_anything_plain_is_strict_json(value: object) -> None:
    converted = plain(value)
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted


def test_an_empty_list_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json([])
    assert capsys.readouterr().out == "[]\n"
