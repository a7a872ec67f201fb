"""The requests of a generated load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.workloads.http.llm.requests import BODIES, Lengths, RequestedLoad
from tests.errors import raised
from tuner.core import InvalidInput


def test_lengths_and_arrivals_are_read() -> None:
    load = RequestedLoad.parse("rate=2.5, prompt=64-512, output=32")
    assert (load.rate_per_s, load.callers, load.trace) == (2.5, None, None)
    assert (load.prompt, load.output) == (Lengths(64, 512), Lengths(32, 32))
    assert RequestedLoad.parse("callers=4").callers == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rate",
        "rate=",
        "rate=fast",
        "rate=0",
        "rate=-1",
        "rate=nan",
        "rate=inf",
        "callers=1.5",
        "rate=1,callers=2",
        "prompt=64",
        "rate=1,prompt=0",
        "rate=1,prompt=9-3",
        "rate=1,prompt=3-",
        "rate=1,rate=2",
        "speed=3",
        "trace=a.csv,prompt=3",
    ],
)
def test_text_that_does_not_parse_is_refused_with_an_example(text: str) -> None:
    with raised(InvalidInput, "generate-load") as refused:
        RequestedLoad.parse(text)
    assert "rate=2" in refused.value.hint


def test_bodies_are_different_within_their_ranges_and_the_same_again() -> None:
    load = RequestedLoad.parse("rate=1,prompt=8-64,output=4-16")
    bodies = [
        json.loads(line)
        for line in load.bodies("small", {"ignore_eos": True}, 1).split("\n")
        if line
    ]
    assert len(bodies) == BODIES == len({body["prompt"] for body in bodies})
    assert all(8 <= len(body["prompt"].split()) <= 64 for body in bodies)
    assert all(4 <= body["max_tokens"] <= 16 and body["ignore_eos"] for body in bodies)
    assert load.bodies("small", {}, 1) == load.bodies("small", {}, 1) != load.bodies("small", {}, 2)


def test_a_traces_lengths_are_those_of_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0.0,5,7\n1.5,3,2\n")
    load = RequestedLoad.parse(f"trace={file}")
    bodies = [json.loads(line) for line in load.bodies("small", {}, 0).split("\n") if line]
    assert [(len(b["prompt"].split()), b["max_tokens"]) for b in bodies] == [(5, 7), (3, 2)]


@pytest.mark.parametrize(
    "text", ["", "arrival_s\n0\n", "arrival_s,prompt_tokens,output_tokens\n0,0,1\n"]
)
def test_a_trace_without_lengths_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with raised(InvalidInput, str(file)):
        RequestedLoad.parse(f"trace={file}").bodies("small", {}, 0)
    with raised(InvalidInput, "missing.csv"):
        RequestedLoad.parse("trace=missing.csv").bodies("small", {}, 0)
