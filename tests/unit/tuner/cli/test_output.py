"""JSON on stdout is strict JSON, whatever goes in; a table's names stay whole."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.builders import START
from tuner.cli.output import echo_json, echo_table, plain, table
from tuner.core import Estimate, Phase
from tuner.wire import Problem


def test_bounds_that_are_infinite_become_null() -> None:
    found = plain(Estimate(2.0, 0.1, high=math.inf))
    assert isinstance(found, dict)
    assert found["mean"] == 2.0
    assert found["high"] is None
    assert found["origin"] == "measured"


def test_messages_times_and_words() -> None:
    message = Problem(code="x", message="y")
    assert plain(message) == {"code": "x", "message": "y", "hint": ""}
    assert plain({"at": START, "phase": Phase.TUNING, "all": (1, True)}) == {
        "at": "2026-01-01T12:00:00+00:00",
        "phase": "tuning",
        "all": [1, True],
    }


@given(st.recursive(st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_anything_plain_is_strict_json(value: object) -> None:
    told = plain(value)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_what_one_types_is_never_folded() -> None:
    out = io.StringIO()
    rows = [("simulated-a100@a-host-with-a-name", *["several words in a row"] * 5)]
    Console(file=out, width=80).print(table("device", *"abcde", rows=rows))
    assert "simulated-a100@a-host-with-a-name" in out.getvalue()


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table("a", "b", rows=(), nothing="nothing here")
    assert capsys.readouterr().out == "nothing here\n"
    echo_json([])
    assert capsys.readouterr().out == "[]\n"
