"""llama-server's own metrics of its decoding."""

from __future__ import annotations

import pytest

from agents.workloads.engine.figures import (
    DecodingTotals,
    SpeculationCounters,
    Timings,
    TimingsReader,
    counters_in,
    timings_of,
)
from tuner.core import MeasurementError

ANSWER = (
    b'data: {"content":"\\"timings\\":{\\"predicted_n\\":7}","stop":false}\n\n'
    b'data: {"content":"","stop":true,"timings":{"prompt_n":29,"prompt_ms":1.5,"predicted_n":24,'
    b'"predicted_ms":7.0,"predicted_per_token_ms":0.3,"draft_n":54,"draft_n_accepted":8}}\n\n'
)
"""The end of a stream of the llama.cpp in 0.3.36; its generated text also contains "timings"."""
METRICS = """# HELP llamacpp:spec_decode_num_drafts_total Speculative: steps
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 28
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 16
# TYPE llamacpp:n_busy_slots_per_decode gauge
llamacpp:n_busy_slots_per_decode 1
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 14
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 2
"""


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_the_timings_of_a_stream_are_found_however_it_is_cut(size: int) -> None:
    reader = TimingsReader()
    for at in range(0, len(ANSWER), size):
        reader.see(ANSWER[at : at + size])
    assert reader.timings == Timings(24, 0.007, 54, 8)


def test_timings_in_generated_text_are_not_parsed() -> None:
    reader = TimingsReader()
    reader.see(ANSWER.split(b"\n\n")[0])
    assert reader.timings is None


def test_a_pass_yields_one_token_beside_those_it_accepts() -> None:
    assert Timings(24, 1.0, drafted=54, accepted=8).passes == 15
    assert Timings(0, 0.0).passes == 0


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        {"predicted_n": -1, "predicted_ms": 1.0},
        {"predicted_n": True, "predicted_ms": 1.0},
        {"predicted_n": 3, "predicted_ms": float("nan")},
        {"predicted_n": 3, "predicted_ms": 1.0, "draft_n": 1, "draft_n_accepted": 2},
    ],
)
def test_timings_that_cannot_be_are_none(table: object) -> None:
    assert timings_of(table) is None


def test_counters_by_position_are_read() -> None:
    assert counters_in(METRICS, "x") == SpeculationCounters(28, 16, (14, 2))


def test_a_build_without_these_counters_reports_zeros() -> None:
    assert counters_in("llamacpp:tokens_predicted_total 5\n", "x") == SpeculationCounters()


@pytest.mark.parametrize(
    "text",
    [
        METRICS.replace("_drafts_total 28", "_drafts_total NaN"),
        METRICS.replace('position="0"', 'position="3"'),
        METRICS.replace("_drafts_total 28", "_drafts_total nonsense"),
    ],
)
def test_impossible_counters_are_refused(text: str) -> None:
    with pytest.raises(MeasurementError):
        counters_in(text, "x")


def test_counters_of_different_lengths_add_up() -> None:
    both = SpeculationCounters(28, 16, (14, 2)).plus(SpeculationCounters(1, 1, (1,)))
    assert both == SpeculationCounters(29, 17, (15, 2))


def test_an_answer_without_timings_is_counted_as_unknown() -> None:
    totals = DecodingTotals()
    totals.add(None)
    totals.add(Timings(24, 0.5, 54, 8))
    assert (totals.requests, totals.untold, totals.items, totals.passes) == (2, 1, 24, 15)


def test_counters_of_vllm_are_summed_over_its_engines() -> None:
    name, labels = "vllm:spec_decode_num", '{engine="%d",model_name="m"}'
    rows = [
        f"{name}_{what}_total{labels % engine} {value}"
        for engine in (0, 1)
        for what, value in (("drafts", 5), ("accepted_tokens", 7))
    ]
    position = '{engine="0",model_name="m",position="%d"}'
    rows += [f"{name}_accepted_tokens_per_pos_total{position % n} {5 - n}" for n in (0, 1)]
    got = counters_in("\n".join([*rows, ""]), "vLLM")
    assert (got.steps, got.accepted, got.by_position) == (10, 14, (5, 4))
