"""A trace of arrivals: read strictly, and sent with its real gaps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.load.arrivals import read_arrivals
from agents.load.generator import LoadRun, LoadShape
from tests.errors import raised
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import InvalidInput

GAPS = st.lists(st.floats(0.0, 1e3, allow_nan=False), min_size=1, max_size=30)


@given(GAPS, st.floats(-1e6, 1e6))
def test_a_trace_begins_at_zero_and_keeps_its_gaps(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[float], begin: float
) -> None:
    moments = list(itertools.accumulate([begin, *gaps]))
    file = tmp_path_factory.mktemp("trace") / "trace.csv"
    rows = "".join(f"{n},{moment!r}\n" for n, moment in enumerate(moments))
    file.write_text("request,arrival_s\n" + rows)
    if moments[-1] == moments[0]:
        with raised(InvalidInput, "time"):
            read_arrivals(file)
        return
    assert read_arrivals(file) == tuple(moment - moments[0] for moment in moments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read the trace"),
        ("", "has 0 arrivals"),
        ("at\n1\n2\n", "has no column arrival_s"),
        ("arrival_s\n1\n", "has 1 arrivals"),
        ("arrival_s\n1\nsoon\n", "cannot be read"),
        ("arrival_s,b\n1,2\n", "has 1 arrivals"),
        ("b,arrival_s\n1,2\n1\n", "cannot be read"),
        ("arrival_s\n1\n3\n2\n", "line 4: 2 comes after 3"),
        ("arrival_s\n1\nnan\n", "line 3: nan comes after 1"),
        ("arrival_s\n1\n1\n", "has no duration"),
    ],
)
def test_an_invalid_trace_is_refused_with_its_place(
    tmp_path: Path, text: str | None, says: str
) -> None:
    file = tmp_path / "trace.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_arrivals(file)
    assert says in caught.value.message and "trace.csv" in caught.value.message


class Answering:
    """Answers everything at once."""

    def send(self) -> str:
        return ""

    def close(self) -> None:
        return


def test_arrivals_come_at_their_moments_and_begin_again() -> None:
    shape = LoadShape(4, arrivals_s=(0.0, 0.02, 0.1))
    run = LoadRun(Answering, shape, clock=Wall(), max_requests=7)
    tally = run.wait()
    assert tally.arrived_at_s == pytest.approx([0.0, 0.02, 0.1, 0.15, 0.17, 0.25, 0.3])
    for due, done, late in zip(
        tally.arrived_at_s, sorted(tally.completed_at_s), tally.latencies_s, strict=True
    ):
        assert done >= due and late >= 0.0


def test_requests_that_are_due_but_not_sent_count_as_failed() -> None:
    class Slow(Answering):
        def send(self) -> str:
            Wall().sleep(0.3)
            return ""

    run = LoadRun(Slow, LoadShape(1, arrivals_s=(0.0, 0.01, 0.02)), clock=Wall())
    Wall().sleep(0.2)
    tally = run.stop()
    assert tally.failed > 5 and len(tally.completed_at_s) == 1


def test_a_trace_has_its_own_rate_and_no_context_of_ours() -> None:
    with raised(InvalidInput, "rate"):
        LoadShape(4, 10.0, (0.0, 1.0))
    shape = LoadShape(4, arrivals_s=(0.0, 1.0))
    assert (shape.context, shape.closed, shape.round_s) == ({}, False, 2.0)
    assert str(shape) == "a trace of 2 arrivals in 2 s"
